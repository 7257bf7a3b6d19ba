//! What a local user without rights can do to a group: nothing. Each attack is tried by the user `nobody` against a group with a
//! mounted volume. One that asks for what only root may do must be refused. One that stays is there while commands run and while
//! the server is killed: all of them must end, soon, and do what they say.

use crate::world::{MIB, Running, World, tool};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No command may take as long, whatever else the machine does.
const LIMIT: Duration = Duration::from_secs(60);

const NOBODY: [&str; 6] =
    ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--no-new-privs", "--pdeathsig=KILL"];

/// What must not succeed: a line of a shell, whose success is the attack's. Those that do no harm are tried by root first: one
/// that fails even so would show nothing.
const REFUSED: &[(bool, &str, &str)] = &[
    (
        true,
        "speaks to the server",
        r#"perl -MSocket -e 'socket S,1,1,0; connect S,sockaddr_un $ARGV[0] or exit 1' "$RUN/$VG/control.sock""#,
    ),
    (
        true,
        "speaks to the keeper",
        r#"perl -MSocket -e 'socket S,1,5,0; connect S,sockaddr_un $ARGV[0] or exit 1' "$RUN/$VG/keeper.sock""#,
    ),
    (true, "lists the run directory", r#"ls "$RUN""#),
    (true, "lists the group's run directory", r#"ls "$RUN/$VG""#),
    (true, "makes a file in the run directory", r#"touch "$RUN/x""#),
    (true, "makes a file in the group's run directory", r#"touch "$RUN/$VG/x""#),
    (false, "makes a name under /dev", r#"ln -s /dev/null "/dev/$VG/x""#),
    (false, "renames a volume's node", r#"mv "/dev/$VG/files" "/dev/$VG/x""#),
    (false, "puts a node elsewhere", r#"ln -sf /dev/null "/dev/$VG/files""#),
    (true, "reads the copies of the metadata", r#"cat "$ETC"/backup/*"#),
    (true, "reads the history", r#"cat "$ETC"/history/*"#),
    (true, "writes to the list of devices", r#"echo >>"$ETC/devices""#),
    (false, "makes settings", r#"echo x >"$ETC/rowen.conf""#),
    (true, "reads a volume", r#"dd if="/dev/$VG/files" of=/dev/null count=1"#),
    (true, "writes to a volume", r#"dd if=/dev/zero of="/dev/$VG/raw" count=1"#),
    (true, "reads a volume's file", r#"dd if="$RUN/$VG/volumes/files@1" of=/dev/null count=1"#),
    (true, "reads a volume through the server's descriptors", r#"ls "/proc/$SERVER/fd/""#),
    (true, "sees what the server's memory holds", r#"cat "/proc/$SERVER/maps""#),
    (true, "reads the server's environment", r#"cat "/proc/$SERVER/environ""#),
    (true, "looks at files through the server's root", r#"ls "/proc/$SERVER/root/""#),
    (false, "stops the server", r#"kill -STOP "$SERVER""#),
    (false, "kills the server", r#"kill -KILL "$SERVER""#),
    (false, "kills the keeper", r#"kill -KILL "$KEEPER""#),
    (false, "limits the server's descriptors", r#"prlimit --pid "$SERVER" --nofile=1:1"#),
    (false, "slows the server down", r#"renice -n 19 -p "$SERVER""#),
    (false, "binds the server to a processor", r#"taskset -cp 0 "$SERVER""#),
    (
        false,
        "aborts the volume's connection",
        r#"for file in /sys/fs/fuse/connections/*/abort; do echo 1 >"$file" && exit 0; done; exit 1"#,
    ),
    (
        false,
        "aborts it as root of a namespace",
        r#"unshare -Urm sh -c 'for file in /sys/fs/fuse/connections/*/abort; do echo 1 >"$file" && exit 0; done; exit 1'"#,
    ),
    (false, "unmounts the volume's file", r#"umount "$RUN/$VG/volumes/files@1""#),
    (false, "takes the loop device away", r#"losetup -d "$(readlink -f "/dev/$VG/files")""#),
    (false, "removes a volume", r#""$ROWEN" lvremove -f "$VG/raw""#),
    (true, "makes a snapshot", r#""$ROWEN" lvcreate -s -n x "$VG/raw""#),
    (false, "removes the group as root of a namespace", r#"unshare -Urm "$ROWEN" vgremove -f "$VG""#),
    (false, "takes the disk", r#""$ROWEN" pvremove -ff -y "$PV""#),
];

/// What stays, until it is killed: a script that says `ready`.
const STAYING: &[(&str, &str)] = &[
    (
        "holds locks on all that can be opened",
        r#"perl -MFcntl=:DEFAULT,:flock -e '
            for (@ARGV) { for my $p ($_, glob "$_/* $_/*/*") { push @f, $f if sysopen $f, $p, O_RDONLY|O_NONBLOCK and flock $f, LOCK_EX|LOCK_NB } }
            for (@ARGV) { push @f, $f if !-f && sysopen $f, $_, 0200000 and flock $f, LOCK_EX|LOCK_NB }
            $| = 1; print "ready\n"; sleep 600' "$RUN" "$RUN/$VG" "$ETC" /dev "/dev/$VG" /dev/mapper /run /etc /tmp "$POINT" "$ROWEN""#,
    ),
    ("keeps copies of all mounts", r"exec unshare -Urm sh -c 'echo ready; exec sleep 600'"),
    (
        "puts a pipe where the volume is mounted",
        r#"exec unshare -Urm sh -c 'mount -t tmpfs none "$WORLD" && mkfifo "$POINT" && echo ready && exec sleep 600'"#,
    ),
    (
        "puts a link to / where the volume is mounted",
        r#"exec unshare -Urm sh -c 'mount -t tmpfs none "$WORLD" && ln -s / "$POINT" && echo ready && exec sleep 600'"#,
    ),
    (
        "calls its own mount a volume",
        r#"exec unshare -Urm sh -c 'mount -t tmpfs "$(readlink -f "/dev/$VG/spare")" /mnt && echo ready && exec sleep 600'"#,
    ),
    (
        "has programs named as servers and keepers",
        r#"for n in $(seq 50); do bash -c 'exec -a "$ROWEN serve $VG" sleep 600' & bash -c 'exec -a "$ROWEN keeper $VG" sleep 600' & done; echo ready; wait"#,
    ),
    (
        "has a thousand mounts and nine hundred descriptors",
        r#"exec unshare -Urm sh -c 'mount -t tmpfs none /mnt; n=0
            while [ $n -lt 1000 ]; do n=$((n+1)); mkdir /mnt/$n && mount -t tmpfs none /mnt/$n; done
            exec perl -e "for (1..900) { open my \$f, q(<), q(/proc/self/status); push @f, \$f } \$| = 1; print qq(ready\n); sleep 600"'"#,
    ),
    (
        "holds a file of a filesystem that does not answer",
        r#"exec unshare -Urm perl -e '
            $^F = 9; open my $fuse, "+<", "$ENV{WORLD}/for-all/fuse" or die "fuse: $!";
            my $options = "fd=" . fileno($fuse) . ",rootmode=40000,user_id=0,group_id=0";
            my ($mount, $openat) = `uname -m` eq "x86_64\n" ? (165, 257) : (40, 56);
            syscall($mount, my $source = "hangs", my $at = "/mnt", my $kind = "fuse", 0, $options) == 0 or die "mount: $!";
            # Only its place: every other way to open it would wait.
            syscall($openat, -100, $at, 010000000, 0) >= 0 or die "open: $!";
            $| = 1; print "ready\n"; sleep 600'"#,
    ),
    (
        "has programs that hang and are called as a helper is",
        r#"exec unshare -Urm perl -e '
            $^F = 9; open my $fuse, "+<", "$ENV{WORLD}/for-all/fuse" or die "fuse: $!";
            my $options = "fd=" . fileno($fuse) . ",rootmode=40000,user_id=0,group_id=0";
            my $mount = `uname -m` eq "x86_64\n" ? 165 : 40;
            syscall($mount, my $source = "hangs", my $at = "/mnt", my $kind = "fuse", 0, $options) == 0 or die "mount: $!";
            for (1..5) { fork or exec "$ENV{WORLD}/for-all/exe", "-e", "stat q(/mnt)" }
            sleep 12; $| = 1; print "ready\n"; sleep 600'"#,
    ),
    (
        "asks for the sockets all the time",
        r#"for n in 1 2; do perl -MSocket -e 'while () { for (@ARGV) { socket S,1,1,0; connect S, sockaddr_un $_; select undef,undef,undef,0.001 } }' "$RUN/$VG/control.sock" "$RUN/$VG/keeper.sock" & done; echo ready; wait"#,
    ),
    ("works in the group's directory", r#"cd "/dev/$VG"; exec 8<.; echo ready; exec sleep 600"#),
    (
        "lists the names all the time",
        r#"(while :; do ls -lR /dev/mapper "/dev/$VG"; sleep 0.01; done) >/dev/null 2>&1 & echo ready; wait"#,
    ),
];

struct Scene {
    world: World,
    /// Where this test lies, readable by all.
    program: String,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let world = World::new(name, 512);
        world.ok("lvcreate -y -L 64M -n files VG");
        world.ok("lvcreate -y -L 16M -n raw VG");
        world.ok("lvcreate -y -L 16M -n spare VG");
        tool("mkfs.ext4", &["-q", world.node("files").to_str().unwrap()]);
        fs::set_permissions(world.mount("files", "noatime"), fs::Permissions::from_mode(0o755)).unwrap();
        let for_all = world.dir.join("for-all");
        fs::create_dir(&for_all).unwrap();
        // As udev has it on most systems.
        tool("mknod", &["-m", "666", for_all.join("fuse").to_str().unwrap(), "c", "10", "229"]);
        // A helper's name, while it runs (comm).
        fs::copy("/usr/bin/perl", for_all.join("exe")).unwrap();
        let program = for_all.join("rowen");
        fs::copy(env!("CARGO_BIN_EXE_rowen"), &program).unwrap();
        Scene { program: program.to_str().unwrap().to_owned(), world }
    }

    /// The keeper's process.
    fn keeper(&self) -> i32 {
        let words = format!("keeper\0{}\0", self.world.group);
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        let is_it = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&words) && fs::read(format!("/proc/{pid}/environ")).is_ok()
        };
        let is_roots = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == "Uid:\t0\t0\t0\t0")
        };
        pids.filter(is_it).find(is_roots).unwrap()
    }

    /// A user runs this script.
    fn user(&self, script: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(NOBODY).args(["bash", "-c", script]);
        self.known(command)
    }

    fn root(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        self.known(command)
    }

    /// With what an attacker knows.
    fn known(&self, mut command: Command) -> Command {
        let dir = &self.world.dir;
        command.current_dir("/").stdin(Stdio::null());
        command
            .env("RUN", dir.join("run"))
            .env("ETC", dir.join("etc"))
            .env("ROWEN_RUN_DIR", dir.join("run"))
            .env("ROWEN_SYSTEM_DIR", dir.join("etc"))
            .env("VG", &self.world.group)
            .env("WORLD", dir)
            .env("PV", dir.join("pv"))
            .env("POINT", dir.join("mnt-files"))
            .env("ROWEN", &self.program)
            .env("SERVER", self.world.server().unwrap().to_string())
            .env("KEEPER", self.keeper().to_string());
        command
    }

    /// Somebody who stays, and all that they started. It has said that it is ready.
    fn stays(&self, name: &str, script: &str) -> Running {
        use std::os::unix::process::CommandExt;
        let mut user = Running(self.user(script).process_group(0).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(user.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{name} does not come to it");
        user
    }

    /// A command ends, with success, within the limit.
    fn goes(&self, attack: &str, line: &str) -> String {
        let mut child =
            Running(self.world.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let until = Instant::now() + LIMIT;
        while child.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "a user who {attack}: '{line}' does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut said, mut err) = (String::new(), String::new());
        std::io::Read::read_to_string(child.0.stdout.as_mut().unwrap(), &mut said).unwrap();
        std::io::Read::read_to_string(child.0.stderr.as_mut().unwrap(), &mut err).unwrap();
        let status = child.0.wait().unwrap();
        assert!(status.success() && err.is_empty(), "a user who {attack}: '{line}': {err}");
        said
    }

    /// All that an administrator does goes on.
    fn is_sound(&self, attack: &str) {
        let volumes = self.goes(attack, "lvs --noheadings -o lv_name,lv_active VG");
        assert_eq!(
            volumes.split_whitespace().collect::<Vec<_>>().join(" "),
            "files active raw active spare active",
            "{attack}"
        );
        self.goes(attack, "status");
        self.goes(attack, "pvs");
        self.goes(attack, "vgs");
        self.goes(attack, "lvcreate -y -s -n snap VG/files");
        self.goes(attack, "lvremove -f VG/snap");
        self.goes(attack, "lvchange -an VG/spare");
        self.goes(attack, "lvchange -ay VG/spare");
        self.goes(attack, "lvrename VG spare other");
        self.goes(attack, "lvrename VG other spare");
        let dead = self.world.server().unwrap();
        let pid = rustix::process::Pid::from_raw(dead).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let until = Instant::now() + LIMIT;
        while self.world.server().is_none_or(|server| server == dead) {
            assert!(Instant::now() < until, "a user who {attack}: no server comes back");
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::write(self.world.dir.join("mnt-files/written"), attack).unwrap();
        self.goes(attack, "check VG");
        assert_eq!(fs::read_to_string(self.world.dir.join("mnt-files/written")).unwrap(), attack);
    }
}

/// Ends a user's processes.
fn end(mut user: Running) {
    let group = rustix::process::Pid::from_raw(user.0.id().cast_signed()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    user.0.wait().unwrap();
}

#[test]
fn what_only_root_may_do_is_refused() {
    let scene = Scene::new("refusedall");
    let users = scene.user("id -u").output().unwrap();
    assert_eq!(users.stdout, b"65534\n", "the user can run programs");
    assert!(Path::new(&scene.program).exists());
    let (server, keeper) = (scene.world.server(), scene.keeper());
    for (is_harmless, attack, script) in REFUSED {
        if *is_harmless {
            let output = scene.root(script).output().unwrap();
            assert!(output.status.success(), "root {attack}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let output = scene.user(script).output().unwrap();
        assert!(!output.status.success(), "a user {attack}: {}", String::from_utf8_lossy(&output.stdout));
        let is_missing = output.status.code() == Some(127) || output.status.code() == Some(126);
        assert!(!is_missing, "it was not tried whether a user {attack}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!((scene.world.server(), scene.keeper()), (server, keeper));
    scene.world.ok("lvremove -f VG/x");
    scene.is_sound("was refused everything");
}

#[test]
fn who_stays_hinders_nobody() {
    let scene = Scene::new("stayers");
    for (attack, script) in STAYING {
        let user = scene.stays(attack, script);
        scene.is_sound(attack);
        end(user);
    }
    // All at once.
    let users: Vec<Running> = STAYING.iter().map(|(attack, script)| scene.stays(attack, script)).collect();
    scene.is_sound("does all of it");
    users.into_iter().for_each(end);
}

/// What a virtual machine writes into its volume is its own affair: it may be the label of a physical volume of this group.
#[test]
fn a_label_inside_a_volume_is_not_believed() {
    let scene = Scene::new("forged");
    let mut label = vec![0; MIB as usize];
    let disk = fs::File::open(scene.world.dir.join("pv")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&disk, &mut label, 0).unwrap();
    let volume = fs::File::options().write(true).open(scene.world.node("raw")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&volume, &label, 0).unwrap();
    volume.sync_all().unwrap();
    drop(volume);
    let disks = scene.goes("forges a label", "pvs --noheadings -o pv_name");
    assert_eq!(disks.trim(), scene.world.dir.join("pv").to_str().unwrap());
    scene.is_sound("forges a label");
}
