//! Opening a database for reading changes nothing and needs no right to write. A database of another kind is an error with a clear text.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::shop::{orders, three};
use crate::support::{File, To, fsm, fsm_at, on_both};

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made() {
    let file = File::new();
    let said = fsm_at(None, To::Pipe, &["--database", file.path(), "ls"]).await;
    assert_eq!(said.code, 7);
    assert!(said.talk.contains("cannot be opened"), "{said:?}");
    assert!(!Path::new(file.path()).exists());
}

#[tokio::test]
async fn a_database_without_our_tables_is_left_alone() {
    let file = File::new();
    let url = format!("sqlite://{}?mode=rwc", file.path());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create table theirs (n integer)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let before = std::fs::read(file.path()).unwrap();
    let said = fsm_at(None, To::Pipe, &["--database", file.path(), "machines"]).await;
    assert_eq!(said.code, 7);
    assert!(said.talk.contains("has no tables of durable-fsm"), "{said:?}");
    assert_eq!(std::fs::read(file.path()).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_database_is_told_so() {
    let file = File::new();
    std::fs::write(file.path(), "a shopping list, and a long one, that is no database at all").unwrap();
    for given in [file.path(), "redis://localhost", "postgres://nobody@127.0.0.1:1/none"] {
        let said = fsm_at(None, To::Pipe, &["--database", given, "ls"]).await;
        assert_eq!(said.code, 7, "{said:?}");
        assert!(said.talk.starts_with("fsm: "), "{said:?}");
    }
}

on_both! {
    async fn a_database_of_a_newer_schema_is_told_so(bed) {
        let newer = "insert into fsm_migrations (version, name, checksum, applied_at) values (99, 'later', 0, 0)";
        if bed.url().starts_with("postgres") {
            let mut conn = PgConnection::connect(bed.url()).await.unwrap();
            sqlx::raw_sql(newer).execute(&mut conn).await.unwrap();
        } else {
            let mut conn = SqliteConnection::connect(bed.url()).await.unwrap();
            sqlx::raw_sql(newer).execute(&mut conn).await.unwrap();
        }
        let said = fsm(bed, To::Pipe, &["ls"]).await;
        assert_eq!(said.code, 7);
        assert!(said.talk.contains("the database has schema 99, and this program knows schemas up to "), "{said:?}");
    }
}

on_both! {
    async fn a_database_of_an_older_schema_is_told_so_and_left_alone(bed) {
        let older = "delete from fsm_migrations where version > 1";
        if bed.url().starts_with("postgres") {
            sqlx::raw_sql(older).execute(&mut PgConnection::connect(bed.url()).await.unwrap()).await.unwrap();
        } else {
            sqlx::raw_sql(older).execute(&mut SqliteConnection::connect(bed.url()).await.unwrap()).await.unwrap();
        }
        for arguments in [&["ls"][..], &["pause", "order", "o-1"], &["migrate", "check"], &["export"]] {
            let said = fsm(bed, To::Pipe, arguments).await;
            assert_eq!((said.code, said.out.as_str()), (7, ""), "{said:?}");
            assert!(said.talk.contains("has schema 1") && said.talk.lines().count() == 1, "{said:?}");
        }
    }
}

/// The commands that only read, with arguments.
const LOOKS: [&[&str]; 11] = [
    &["machines"],
    &["ls"],
    &["ls", "order", "--state", "placed"],
    &["show", "order", "o-1"],
    &["errors"],
    &["due"],
    &["workers"],
    &["stats"],
    &["graph", "order", "--counts"],
    &["doctor"],
    &["export", "--live"],
];

on_both! {
    async fn who_looks_waits_for_no_writer_and_keeps_none_waiting(bed) {
        three(bed).await;
        let write = "update fsm_instances set updated_at = updated_at + 1";
        macro_rules! meanwhile {
            ($conn:expr, $begin:literal) => {{
                let mut conn = $conn;
                sqlx::raw_sql($begin).execute(&mut conn).await.unwrap();
                sqlx::raw_sql(write).execute(&mut conn).await.unwrap();
                for arguments in LOOKS {
                    let said = fsm(bed, To::Pipe, arguments).await;
                    assert_eq!(said.code, 0, "{said:?}");
                    assert!(!said.out.contains(".000001Z"), "what is not committed is not seen: {said:?}");
                }
                sqlx::raw_sql("commit").execute(&mut conn).await.unwrap();
            }};
        }
        if bed.url().starts_with("postgres") {
            meanwhile!(PgConnection::connect(bed.url()).await.unwrap(), "begin");
        } else {
            meanwhile!(SqliteConnection::connect(bed.url()).await.unwrap(), "begin immediate");
        }
        assert!(fsm(bed, To::Pipe, &["ls"]).await.out.contains(".000001Z"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_written_can_be_read_and_stays_as_it_is() {
    let file = File::new();
    let bed = orders().on(&file.url()).await;
    three(&bed).await;
    drop(bed);
    let folder = Folder::new();
    let mut whole = SqliteConnection::connect(&format!("sqlite://{}", file.path())).await.unwrap();
    let copy = folder.0.join("orders.db");
    sqlx::query(AssertSqlSafe(format!("vacuum into '{}'", copy.display()))).execute(&mut whole).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("attach '{}' as copy; pragma copy.journal_mode = wal; detach copy", copy.display())))
        .execute(&mut whole)
        .await
        .unwrap();
    let program = folder.program();
    let before = std::fs::read(&copy).unwrap();
    assert_eq!(before[18], 2, "the copy is in WAL mode");
    folder.close(&copy);
    for arguments in LOOKS.iter().filter(|arguments| !matches!(arguments[0], "workers")) {
        let output = as_somebody(Command::new(&program).arg("--database").arg(&copy).args(*arguments));
        assert!(output.status.success(), "{output:?}");
        assert!(!output.stdout.is_empty(), "{output:?}");
    }
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let files: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_look_can_look() {
    let bed = orders().postgres().await;
    three(&bed).await;
    let role = format!("fsm_viewer_{}", uuid::Uuid::new_v4().simple());
    let mut conn = PgConnection::connect(bed.url()).await.unwrap();
    let script = format!("create role {role} login; grant select on all tables in schema public to {role}");
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut conn).await.unwrap();
    let as_viewer = format!("{}{}user={role}", bed.url(), if bed.url().contains('?') { "&" } else { "?" });
    for arguments in LOOKS {
        let all: Vec<&str> = ["--database", &as_viewer].iter().chain(arguments).copied().collect();
        let said = fsm_at(Some(bed.now()), To::Pipe, &all).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    sqlx::raw_sql(AssertSqlSafe(format!("drop owned by {role}; drop role {role}"))).execute(&mut conn).await.unwrap();
}

/// A folder with the program, which nobody can write to after `close`.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = std::env::temp_dir().join(format!("fsm-cli-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    /// Copies the program to a place where another user can start it.
    fn program(&self) -> PathBuf {
        let program = self.0.join("fsm");
        std::fs::copy(env!("CARGO_BIN_EXE_fsm"), &program).unwrap();
        program
    }

    fn close(&self, file: &Path) {
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o444)).unwrap();
        std::fs::set_permissions(&self.0, PermissionsExt::from_mode(0o555)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions(&self.0, PermissionsExt::from_mode(0o755));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the program as a user other than root, who may write everywhere.
fn as_somebody(command: &mut Command) -> Output {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    if is_root {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}
