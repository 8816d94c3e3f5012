# The guardian of one throw-away cluster: it makes the cluster, obeys its users, and deletes it once the last one is gone.
#
# Its input is the pipe whose other end every user holds open, so the end of input says that nobody is left, however they
# ended. Its output is the locked file by which others know that it lives; nothing may be printed there.
# Arguments: the folder, the seconds to wait for the next user, the folder of the server's programs, the server's options.
folder=$1 linger=$2 programs=$3
shift 3

# The file `state` says `started n` or `stopped n`, where n counts the starts.
starts=0

start() {
    starts=$((starts + 1))
    echo "started $starts" > state
    ( "$programs/postgres" "$@"; echo "stopped $starts" > state ) < /dev/null >> log 2>&1 &
}

stop() {
    until [ "$(cat state)" = "stopped $starts" ]; do
        kill -QUIT "$(head -n 1 data/postmaster.pid)"
        sleep 0.05
    done
} < /dev/null > /dev/null 2>&1

obey() {
    case $order in
        start) stop; start "$@" ;;
        stop) stop ;;
    esac
}

leave() {
    trap '' EXIT HUP INT TERM
    stop
    cd / && rm -rf "$folder" && rmdir "${folder%/*}"
} 2> /dev/null

echo "stopped 0" > state
trap leave EXIT
trap 'exit 1' HUP INT TERM

if "$programs/initdb" --pgdata=data --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync < /dev/null > log 2>&1; then
    start "$@"
else
    starts=1
    echo "stopped 1" > state
fi

while :; do
    while read -r order; do obey "$@"; done
    sleep "$linger"
    read -r order || break
    obey "$@"
done
# From here on nobody can join, and whoever did at the last moment is waited for.
rm -f users
while read -r order; do obey "$@"; done
