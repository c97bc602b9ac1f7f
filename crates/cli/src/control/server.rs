//! The clients of a launcher's socket: takes requests, and answers them when they can be answered.
//!
//! ```text
//! accepted ─► a request is read ─► answered at once ───────────────────────────► the answer is written ─► the next request …
//!                                └► names are looked up ─► waits for the run's processes ─┘
//! ```
//! Nothing here blocks: the launcher's loop polls the descriptors, and `serve` does what can be done. Requests,
//! answers, clients and times are bounded; a client that exceeds a bound gets an error, if it reads, and its connection
//! ends. One that disconnects while it waits does not revert its change.

use super::message::{ANSWER_BYTES_MAX, Answer, Behind, Change, REQUEST_BYTES_MAX, Request, Status, Verb};
use super::socket_path::{Bound, peer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Connections at a time.
const CLIENTS_MAX: usize = 16;
/// A client that neither asks nor reads for so long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// How long an answer waits for the run's processes when the request does not say.
const WAIT: Duration = Duration::from_secs(10);
/// How long names may be looked up at least: less than a client waits for a launcher that has nothing to wait for.
const LOOK_UP: Duration = Duration::from_secs(3);
/// Between two looks at which processes have acknowledged a command.
const LOOK: Duration = Duration::from_millis(5);
/// Processes that are named because they have not acknowledged.
pub const NAMED_MAX: usize = 64;

/// What can be asked of a run.
pub trait Commanded {
    /// Its figures.
    fn status(&mut self) -> Status;
    /// Begins to look up the paths that a request names; `None`: it names none.
    fn look_up(&mut self, request: &Request) -> Option<LookUp>;
    /// Commands what a request says, all of it or nothing; `far` are the paths that it names, looked up.
    ///
    /// # Errors
    /// Why not, for the user.
    fn set(&mut self, request: &Request, far: &FarUrls) -> Result<Newest, String>;
    /// Whether all processes have acknowledged a command.
    fn is_applied(&mut self, number: u64) -> bool;
    /// How many have not, and the first [`NAMED_MAX`] of them.
    fn behind(&mut self, number: u64) -> (u64, Vec<Behind>);
}

/// Paths that are to come and to go, as the run's processes know them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FarUrls {
    /// To be opened.
    pub added: Vec<String>,
    /// To be emptied and closed.
    pub dropped: Vec<String>,
}

/// A look-up that is under way, or why there is none.
pub type LookUp = Result<Receiver<Result<FarUrls, String>>, String>;

/// The newest command of a run, and its budgets.
#[derive(Clone, Copy)]
pub struct Newest {
    /// The command's.
    pub number: u64,
    /// The local budget now.
    pub local_budget_bytes: u64,
    /// Its ceiling, with a service level.
    pub local_ceiling_bytes: Option<u64>,
    /// The bound on RAM now.
    pub ram_budget_bytes: Option<u64>,
    /// The size of a block now, if it is set.
    pub block_bytes: Option<u64>,
}

/// See the module.
pub struct Clients {
    bound: Bound,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    /// Received and not answered.
    received: Vec<u8>,
    /// To be written.
    answer: Vec<u8>,
    looks_up: Option<LookingUp>,
    waits: Option<Waiting>,
    /// It sends nothing more.
    has_sent_all: bool,
    /// It ends when its answer is written.
    is_last: bool,
    /// It ends then at the latest, unless it waits.
    until: Instant,
}

/// A change whose paths are being looked up.
struct LookingUp {
    request: Request,
    found: Receiver<Result<FarUrls, String>>,
    /// The request's own time.
    until: Instant,
    /// When the look-up is given up.
    given_up: Instant,
}

/// A change whose answer waits for the run's processes.
struct Waiting {
    newest: Newest,
    until: Instant,
}

impl Clients {
    /// Serves the clients of a socket.
    pub fn new(bound: Bound) -> Clients {
        Clients { bound, clients: Vec::new() }
    }

    /// What to poll, and for what.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let awaited = |client: &Client| match (client.answer.is_empty(), client.has_sent_all || client.is_busy()) {
            (false, _) => PollFlags::POLLOUT,
            (true, false) => PollFlags::POLLIN,
            (true, true) => PollFlags::empty(),
        };
        // One that is only waited for would wake the loop again and again once it is gone, or when it has sent more requests than are read ahead.
        let polled = self.clients.iter().filter(move |client| !awaited(client).is_empty());
        let listener = self.bound.acceptor.descriptor().map(|fd| (fd, PollFlags::POLLIN));
        listener.into_iter().chain(polled.map(move |client| (client.stream.as_fd(), awaited(client))))
    }

    /// When to serve at the latest, whether there is news or not.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let due = |client: &Client| if client.is_busy() { now + LOOK } else { client.until };
        self.clients.iter().map(due).chain(self.bound.acceptor.due()).min()
    }

    /// Takes and answers what there is.
    pub fn serve(&mut self, now: Instant, run: &mut impl Commanded) {
        self.accept(now);
        self.clients.retain_mut(|client| client.step(now, run));
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..CLIENTS_MAX {
            let Some(stream) = self.bound.acceptor.accept(now) else { return };
            let is_ours = peer(&stream).is_some_and(|user| user == geteuid() || user.is_root());
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let refusal = match (is_ours, self.clients.len() < CLIENTS_MAX) {
                (false, _) => Some("this run belongs to another user"),
                (true, false) => Some("this run has too many clients; try again"),
                (true, true) => None,
            };
            let mut client = Client {
                stream,
                received: Vec::new(),
                answer: Vec::new(),
                looks_up: None,
                waits: None,
                has_sent_all: false,
                is_last: refusal.is_some(),
                until: now + IDLE,
            };
            match refusal {
                Some(why) => {
                    client.say(&Answer::refused(why));
                    // If it does not read, it is not told.
                    let _ = client.write();
                }
                None => self.clients.push(client),
            }
        }
    }
}

impl Client {
    fn say(&mut self, answer: &Answer) {
        self.answer = answer.line();
        if self.answer.len() > ANSWER_BYTES_MAX {
            self.answer = Answer::refused("the answer would be too long").line();
        }
    }

    /// Goes on as far as it can; false: it has ended.
    fn step(&mut self, now: Instant, run: &mut impl Commanded) -> bool {
        if self.read().is_err() {
            return false;
        }
        loop {
            if !self.answer.is_empty() {
                match self.write() {
                    Err(_) => return false,
                    Ok(false) => break,
                    Ok(true) if self.is_last => return false,
                    Ok(true) => self.until = now + IDLE,
                }
            }
            if let Some(looking_up) = self.looks_up.take() {
                let far = match looking_up.found.try_recv() {
                    Ok(found) => found,
                    Err(TryRecvError::Empty) if now < looking_up.given_up => {
                        self.looks_up = Some(looking_up);
                        break;
                    }
                    Err(_) => Err("the paths could not be looked up in time, so nothing is changed".into()),
                };
                let LookingUp { request, until, .. } = looking_up;
                self.command(&request, far, until, run);
            } else if let Some(waiting) = &self.waits {
                let Newest { number, local_budget_bytes, local_ceiling_bytes, ram_budget_bytes, block_bytes } =
                    waiting.newest;
                let applied = run.is_applied(number);
                if !applied && now < waiting.until {
                    break;
                }
                let (behind_count, behind) = if applied { (0, Vec::new()) } else { run.behind(number) };
                self.waits = None;
                let change = Change {
                    number,
                    local_budget_bytes,
                    local_ceiling_bytes,
                    ram_budget_bytes,
                    block_bytes,
                    behind_count,
                    behind,
                };
                self.say(&Answer::of_change(change));
            } else if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                self.take(&line, now, run);
            } else if self.received.len() >= REQUEST_BYTES_MAX {
                self.is_last = true;
                self.say(&Answer::refused(format!("a request is a line of {REQUEST_BYTES_MAX} bytes at most")));
            } else if self.has_sent_all {
                return false;
            } else {
                break;
            }
        }
        match (&self.waits, &self.looks_up) {
            (Some(_), _) => !self.is_gone(),
            // What it has asked for is done, whether it waits or not.
            (None, Some(_)) => true,
            (None, None) => now < self.until,
        }
    }

    /// Whether its request is being carried out.
    fn is_busy(&self) -> bool {
        self.waits.is_some() || self.looks_up.is_some()
    }

    /// Commands what a request says, if the paths that it names were found.
    fn command(&mut self, request: &Request, far: Result<FarUrls, String>, until: Instant, run: &mut impl Commanded) {
        match far.and_then(|far| run.set(request, &far)) {
            Ok(newest) => self.waits = Some(Waiting { newest, until }),
            Err(why) => self.say(&Answer::refused(why)),
        }
    }

    fn take(&mut self, line: &[u8], now: Instant, run: &mut impl Commanded) {
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(why) => {
                self.is_last = true;
                return self.say(&Answer::refused(why));
            }
        };
        match request.request {
            Verb::Set => {
                let until = now + request.wait_ms.map_or(WAIT, Duration::from_millis);
                match run.look_up(&request) {
                    None => self.command(&request, Ok(FarUrls::default()), until, run),
                    Some(Ok(found)) => {
                        // As long as it may wait, and long enough for a name server at hand where it does not wait.
                        let given_up = until.max(now + LOOK_UP);
                        self.looks_up = Some(LookingUp { request, found, until, given_up });
                    }
                    Some(Err(why)) => self.say(&Answer::refused(why)),
                }
            }
            Verb::Status => self.say(&Answer::of_status(run.status())),
        }
    }

    /// Reads what has come, up to one request.
    fn read(&mut self) -> Result<(), ()> {
        let mut piece = [0; REQUEST_BYTES_MAX];
        while !self.has_sent_all && self.received.len() < REQUEST_BYTES_MAX {
            let room = REQUEST_BYTES_MAX - self.received.len();
            match self.stream.read(&mut piece[..room]) {
                Ok(0) => self.has_sent_all = true,
                Ok(bytes) => self.received.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(()),
            }
        }
        Ok(())
    }

    /// Writes as much as goes; true: nothing is left.
    fn write(&mut self) -> Result<bool, ()> {
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(bytes) => drop(self.answer.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(()),
            }
        }
        Ok(true)
    }

    /// Whether both directions are closed: the client does not wait for the answer.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|seen| seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::SocketDirectory;
    use crate::control::message::CONTROL_VERSION;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc::{Sender, channel};

    /// A run whose processes acknowledge when the test says so.
    #[derive(Default)]
    struct Run {
        commanded: Vec<String>,
        acknowledged: u64,
        name_server: Option<Sender<Result<FarUrls, String>>>,
    }

    impl Commanded for Run {
        fn status(&mut self) -> Status {
            serde_json::from_str(
                r#"{"pid":7,"command":"job","fault_path":"monitor","wall_seconds":1,"process_count":1,"local_budget_bytes":1,
                "ram_budget_bytes":null,"local_bytes":1,"total_ram_bytes":1,"managed_bytes":1,"far_bytes":1,"major_faults":1,
                "minor_faults":1,"prefetched_pages":1,"stall_seconds":0,"prefetch_accuracy":null,"commands":0,"paths":[]}"#,
            )
            .expect("a status")
        }

        fn look_up(&mut self, request: &Request) -> Option<LookUp> {
            let (sender, found) = channel();
            self.name_server = Some(sender);
            (!request.add_far.is_empty()).then_some(Ok(found))
        }

        fn set(&mut self, request: &Request, far: &FarUrls) -> Result<Newest, String> {
            let written = request.local.clone().unwrap_or_else(|| far.added.concat());
            if written == "1K" {
                return Err("too small".into());
            }
            self.commanded.push(written);
            let number = self.commanded.len() as u64;
            Ok(Newest {
                number,
                local_budget_bytes: 5,
                local_ceiling_bytes: None,
                ram_budget_bytes: None,
                block_bytes: None,
            })
        }

        fn is_applied(&mut self, number: u64) -> bool {
            self.acknowledged >= number
        }

        fn behind(&mut self, _: u64) -> (u64, Vec<Behind>) {
            (
                1,
                vec![Behind {
                    pid: 9,
                    program: "job".into(),
                    local_bytes: 8,
                    share_bytes: 5,
                    path_obstacle: String::new(),
                }],
            )
        }
    }

    /// A socket in a directory of its own.
    struct Here {
        directory: tempfile::TempDir,
        clients: Clients,
        run: Run,
        now: Instant,
    }

    impl Here {
        fn new() -> Here {
            let directory = tempfile::tempdir().unwrap();
            let clients = Clients::new(SocketDirectory::of_test(directory.path()).listen("7".into()).unwrap());
            Here { directory, clients, run: Run::default(), now: Instant::now() }
        }

        fn connect(&self) -> UnixStream {
            let stream = UnixStream::connect(self.directory.path().join("7")).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        }

        fn serve(&mut self) {
            self.clients.serve(self.now, &mut self.run);
        }

        /// What comes back for some bytes.
        fn answer(&mut self, sent: &[u8]) -> Answer {
            let mut stream = self.connect();
            stream.write_all(sent).unwrap();
            self.serve();
            read(&mut BufReader::new(stream))
        }
    }

    fn read(stream: &mut impl BufRead) -> Answer {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let answer: Answer = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: '{line}'"));
        assert_eq!(answer.version, CONTROL_VERSION);
        answer
    }

    fn budget(local: &str, wait_ms: u64) -> Request {
        Request { local: Some(local.into()), ..Request::set(wait_ms) }
    }

    fn line(request: &Request) -> Vec<u8> {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        line
    }

    #[test]
    fn requests_of_one_client_are_answered_in_turn() {
        let mut here = Here::new();
        let mut stream = BufReader::new(here.connect());
        let both = [line(&Request::status()), line(&budget("1K", 0)), line(&Request::status())].concat();
        // In pieces, as they may come.
        for piece in both.chunks(7) {
            stream.get_mut().write_all(piece).unwrap();
            here.serve();
        }
        assert_eq!(read(&mut stream).status.unwrap().pid, 7);
        assert_eq!(read(&mut stream).error.unwrap(), "too small");
        assert_eq!(read(&mut stream).status.unwrap().command, "job");
    }

    #[test]
    fn a_change_is_answered_when_all_have_made_it_or_its_time_is_over() {
        let mut here = Here::new();
        let mut first = BufReader::new(here.connect());
        let mut second = BufReader::new(here.connect());
        first.get_mut().write_all(&line(&budget("20M", 1000))).unwrap();
        here.serve();
        second.get_mut().write_all(&line(&budget("30M", 60_000))).unwrap();
        here.serve();
        assert_eq!(here.run.commanded, ["20M", "30M"]);
        assert!(here.clients.due(here.now).is_some_and(|due| due <= here.now + LOOK));
        here.now += Duration::from_millis(1001);
        here.serve();
        let change = read(&mut first).set.unwrap();
        assert_eq!((change.number, change.behind_count, change.behind[0].pid), (1, 1, 9));
        here.run.acknowledged = 2;
        here.serve();
        let change = read(&mut second).set.unwrap();
        assert_eq!((change.number, change.behind_count, change.behind.len()), (2, 0, 0));
    }

    #[test]
    fn a_slow_name_server_keeps_only_the_client_waiting_that_named_a_path() {
        let mut here = Here::new();
        let path = Request { add_far: vec!["tcp://c:7440".into()], ..Request::set(60_000) };
        let mut first = BufReader::new(here.connect());
        first.get_mut().write_all(&line(&path)).unwrap();
        here.serve();
        assert!(here.answer(&line(&Request::status())).status.is_some() && here.run.commanded.is_empty());
        assert!(here.clients.due(here.now).is_some_and(|due| due <= here.now + LOOK));
        let found = FarUrls { added: vec!["tcp://10.0.0.3:7440".into()], dropped: Vec::new() };
        let answer = |here: &Here, found| here.run.name_server.as_ref().unwrap().send(found).unwrap();
        // The status has asked no name server.
        answer(&here, Ok(found));
        here.run.acknowledged = 1;
        here.serve();
        assert_eq!((read(&mut first).set.unwrap().number, &here.run.commanded[0]), (1, &"tcp://10.0.0.3:7440".into()));
        // Refused, and not answered in time.
        first.get_mut().write_all(&line(&path)).unwrap();
        here.serve();
        answer(&here, Err("no such name".into()));
        here.serve();
        assert_eq!(read(&mut first).error.unwrap(), "no such name");
        first.get_mut().write_all(&line(&path)).unwrap();
        here.serve();
        here.now += Duration::from_secs(60);
        here.serve();
        assert!(read(&mut first).error.unwrap().contains("nothing is changed"));
        assert_eq!(here.run.commanded.len(), 1);
    }

    #[test]
    fn requests_that_are_sent_in_advance_do_not_wake_the_loop_while_one_waits() {
        let mut here = Here::new();
        let mut eager = here.connect();
        eager.write_all(&line(&budget("20M", 60_000))).unwrap();
        let more = line(&Request::status());
        let count = 4 * REQUEST_BYTES_MAX / more.len();
        eager.write_all(&more.repeat(count)).unwrap();
        for _ in 0..3 {
            here.serve();
        }
        let ready = |here: &Here| {
            let mut fds: Vec<PollFd<'_>> =
                here.clients.descriptors().map(|(fd, awaited)| PollFd::new(fd, awaited)).collect();
            poll(&mut fds, PollTimeout::ZERO).unwrap()
        };
        assert_eq!(ready(&here), 0, "a loop would go round and round");
        here.run.acknowledged = 1;
        let mut eager = BufReader::new(eager);
        here.serve();
        assert!(read(&mut eager).set.is_some());
        let mut answered = 0;
        while answered < count {
            here.serve();
            assert!(read(&mut eager).status.is_some());
            answered += 1;
        }
    }

    #[test]
    fn garbage_is_refused_in_words_and_ends_the_connection() {
        let mut here = Here::new();
        for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\n", b"{\"version\":1}\n", b"\xff\xfe\0\n"] {
            let refused = here.answer(sent).error.unwrap();
            assert!(refused.contains("no request"), "{refused}");
        }
        let refused = here.answer(&[b'x'; 3 * REQUEST_BYTES_MAX]).error.unwrap();
        assert!(refused.contains("4096 bytes at most"), "{refused}");
        assert!(here.clients.clients.is_empty() && here.run.commanded.is_empty());
    }

    #[test]
    fn there_are_so_many_clients_and_those_that_are_gone_or_silent_make_room() {
        let mut here = Here::new();
        let kept: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| here.connect()).collect();
        here.serve();
        let refused = here.answer(b"").error.unwrap();
        assert!(refused.contains("too many clients"), "{refused}");
        assert_eq!(here.clients.descriptors().count(), 1 + CLIENTS_MAX);
        drop(kept);
        here.serve();
        assert!(here.clients.clients.is_empty(), "those that hang up are gone");
        let silent = here.connect();
        here.serve();
        assert_eq!(here.clients.clients.len(), 1);
        here.now += IDLE;
        here.serve();
        assert!(here.clients.clients.is_empty(), "and so is one that is silent");
        drop(silent);
    }

    #[test]
    fn a_client_that_goes_while_it_waits_takes_nothing_back() {
        let mut here = Here::new();
        let mut stream = here.connect();
        stream.write_all(&line(&budget("20M", 60_000))).unwrap();
        here.serve();
        // It says that it sends nothing more, and still waits: no reason to look again and again.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        here.serve();
        assert_eq!((here.clients.clients.len(), here.clients.descriptors().count()), (1, 1));
        drop(stream);
        here.serve();
        assert!(here.clients.clients.is_empty());
        assert_eq!(here.run.commanded, ["20M"]);
    }

    #[test]
    fn a_client_that_does_not_read_keeps_nobody_waiting() {
        let mut here = Here::new();
        let mut deaf = here.connect();
        deaf.set_nonblocking(true).unwrap();
        let request = line(&Request::status());
        // Until neither side takes more.
        let mut sent = 0;
        while sent < 100_000 {
            match deaf.write(&request) {
                Ok(bytes) if bytes == request.len() => sent += 1,
                _ => break,
            }
            here.serve();
        }
        assert!(sent > 0 && here.answer(&request).status.is_some());
        here.now += IDLE;
        here.serve();
        assert!(here.clients.clients.is_empty());
    }

    #[test]
    fn the_socket_is_the_users_alone_and_goes_with_its_launcher() {
        use std::os::unix::fs::MetadataExt;
        let here = Here::new();
        let socket = here.directory.path().join("7");
        assert_eq!(std::fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
        let Here { directory, clients, .. } = here;
        drop(clients);
        assert!(!socket.exists());
        drop(directory);
    }
}
