# Waits for the end of its input, and ends what the pid files of the folder $1 name, and the servers that Patroni started.
cat > /dev/null
for file in "$1"/*.pid; do kill -9 "$(cat "$file")" 2> /dev/null; done
for file in "$1"/data*/postmaster.pid; do
    server=$(head -n 1 "$file" 2> /dev/null) || continue
    kill -CONT "$server" 2> /dev/null
    kill -QUIT "$server" 2> /dev/null
done
sleep 1
for file in "$1"/data*/postmaster.pid; do
    server=$(head -n 1 "$file" 2> /dev/null) || continue
    kill -9 $(pgrep -P "$server") "$server" 2> /dev/null
done
exit 0
