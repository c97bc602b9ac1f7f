//! The smallest HTTP server that answers questions about figures: GET and HEAD, one request for each connection.
//!
//! Everything is bounded: one thread that never waits for a single client, a number of connections, of which the oldest goes for one
//! more, and a short time and a small buffer for each. A node's lanes are never kept from their work.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// Time in which something must have arrived of a request, or have been taken of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time between two looks for connections whose time is over, in milliseconds.
const LOOK_EVERY_MS: u16 = 100;
const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// What is answered to a path.
pub struct Page {
    /// Of the content.
    pub content_type: &'static str,
    /// The content.
    pub body: String,
}

/// Answers requests for as long as the process lives; returns where. `page` makes the answer to a path, if it has one.
///
/// # Errors
/// The address cannot be listened on, or no thread be had.
pub fn serve(address: SocketAddr, page: impl Fn(&str) -> Option<Page> + Send + 'static) -> io::Result<SocketAddr> {
    serve_with(address, TIMEOUT, page)
}

fn serve_with(
    address: SocketAddr,
    timeout: Duration,
    page: impl Fn(&str) -> Option<Page> + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Builder::new().name("metrics".into()).spawn(move || {
        let mut server = Server { listener, timeout, page, connections: VecDeque::new() };
        loop {
            if let Err(error) = server.step() {
                tracing::debug!(%error, "requests for figures are not answered");
                // Descriptors may be used up: others end meanwhile.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    })?;
    Ok(address)
}

struct Server<P> {
    listener: TcpListener,
    timeout: Duration,
    page: P,
    /// The oldest first.
    connections: VecDeque<Connection>,
}

struct Connection {
    stream: TcpStream,
    /// When something arrived or was taken last.
    moved: Instant,
    request: Vec<u8>,
    /// What is still to be sent; empty as long as the request is not whole.
    answer: Vec<u8>,
}

impl<P: Fn(&str) -> Option<Page>> Server<P> {
    /// Waits until something can be done, or for a moment, and does it.
    fn step(&mut self) -> io::Result<()> {
        let mut waits = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        for connection in &self.connections {
            let wants = if connection.answer.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
            waits.push(PollFd::new(connection.stream.as_fd(), wants));
        }
        match poll(&mut waits, PollTimeout::from(LOOK_EVERY_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = waits.iter().map(|wait| wait.any().unwrap_or(false)).collect();
        let (news, mut ready) = (ready[0], ready.into_iter().skip(1));
        let page = &self.page;
        self.connections.retain_mut(|connection| {
            let goes_on = !ready.next().unwrap_or(false) || connection.step(page).unwrap_or(false);
            goes_on && connection.moved.elapsed() < self.timeout
        });
        if news { self.accept() } else { Ok(()) }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            if self.connections.len() == CONNECTIONS_MAX {
                self.connections.pop_front();
            }
            let mut connection = Connection { stream, moved: Instant::now(), request: Vec::new(), answer: Vec::new() };
            // What was sent before may be there already: whoever asks at once is answered at once, however many others wait.
            if connection.step(&self.page).unwrap_or(false) {
                self.connections.push_back(connection);
            }
        }
    }
}

impl Connection {
    /// Reads or sends what can be read or sent without waiting; false: the connection is over.
    fn step(&mut self, page: &impl Fn(&str) -> Option<Page>) -> io::Result<bool> {
        while self.answer.is_empty() {
            let mut bytes = [0; 1024];
            let left = REQUEST_BYTES_MAX - self.request.len();
            let read = match self.stream.read(&mut bytes[..left.min(1024)]) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            self.request.extend_from_slice(&bytes[..read]);
            self.moved = Instant::now();
            let is_over = read == 0 || self.request.len() == REQUEST_BYTES_MAX;
            match request(&self.request) {
                Some(asked) => self.answer = answer(asked, page),
                None if is_over => self.answer = answer(HttpRequest::Unreadable, page),
                None => {}
            }
        }
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(sent) => {
                    drop(self.answer.drain(..sent));
                    self.moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        self.stream.shutdown(Shutdown::Write)?;
        Ok(false)
    }
}

/// What a client wants.
enum HttpRequest {
    /// Method and path.
    Page(String, String),
    Unreadable,
}

/// What is asked, once the request is whole or cannot become one.
fn request(bytes: &[u8]) -> Option<HttpRequest> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or("/").split('?').next().unwrap_or("/");
            Some(HttpRequest::Page(request.method.unwrap_or("").to_owned(), path.to_owned()))
        }
        Ok(httparse::Status::Partial) => None,
        Err(_) => Some(HttpRequest::Unreadable),
    }
}

/// The whole answer, as it is sent.
fn answer(request: HttpRequest, page: &impl Fn(&str) -> Option<Page>) -> Vec<u8> {
    let plain = |body: &str| Page { content_type: "text/plain; charset=utf-8", body: format!("{body}\n") };
    let (status, page, with_body) = match request {
        HttpRequest::Unreadable => ("400 Bad Request", plain("not a request that can be read"), true),
        HttpRequest::Page(method, path) => match (method.as_str(), page(&path)) {
            ("GET" | "HEAD", Some(page)) => ("200 OK", page, method == "GET"),
            ("GET" | "HEAD", None) => ("404 Not Found", plain("see /metrics and /healthz"), method == "GET"),
            _ => ("405 Method Not Allowed", plain("GET and HEAD only"), true),
        },
    };
    let Page { content_type, body } = page;
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        text += &body;
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    const ANYWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    const HANG: Duration = Duration::from_secs(60);

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(HANG)).expect("a limit");
        stream.write_all(request).expect("sent");
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        // A server that does not read to the end may reset the connection behind its answer.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn answers_what_it_has_and_names_what_it_refuses() {
        let page = |path: &str| (path == "/here").then(|| Page { content_type: "text/plain", body: "content".into() });
        let address = serve_with(ANYWHERE, HANG, page).expect("a server");
        let got = ask(address, b"GET /here?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\ncontent"), "{got}");
        let got = ask(address, b"HEAD /here HTTP/1.0\r\n\r\n");
        assert!(got.contains("Content-Length: 7\r\n") && got.ends_with("\r\n\r\n"), "{got}");
        let long = [b"GET /".to_vec(), vec![b'x'; 10_000]].concat();
        for (request, status) in [
            (&b"GET /there HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /here HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x02\x00\x01\x00", "400"),
            (b"GET /here HT", "400"),
            (&long, "400"),
        ] {
            let got = ask(address, request);
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {got}");
        }
    }

    /// As many as come: none of them keeps another one waiting, and the oldest make room.
    #[test]
    fn half_requests_keep_nobody_from_an_answer() {
        let page = |_: &str| Some(Page { content_type: "text/plain", body: "content".into() });
        let address = serve_with(ANYWHERE, HANG, page).expect("a server");
        let half = |_| {
            let mut stream = TcpStream::connect(address).expect("taken");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").expect("sent");
            stream
        };
        let crowd: Vec<TcpStream> = (0..600).map(half).collect();
        let got = ask(address, b"GET / HTTP/1.1\r\n\r\n");
        assert!(got.ends_with("content"), "{got}");
        drop(crowd);
    }

    #[test]
    fn who_says_nothing_is_given_up() {
        let page = |_: &str| Some(Page { content_type: "text/plain", body: "content".into() });
        let address = serve_with(ANYWHERE, Duration::from_millis(10), page).expect("a server");
        let mut silent = TcpStream::connect(address).expect("taken");
        silent.set_read_timeout(Some(HANG)).expect("a limit");
        assert_eq!(silent.read(&mut [0]).expect("its end"), 0);
    }

    /// An answer that is larger than the connection takes at once goes on when the client reads.
    #[test]
    fn slow_readers_get_the_whole_answer() {
        const BYTES: usize = 16 << 20;
        let page = |path: &str| {
            let body = if path == "/long" { "x".repeat(BYTES) } else { "content".into() };
            Some(Page { content_type: "text/plain", body })
        };
        let address = serve_with(ANYWHERE, HANG, page).expect("a server");
        let mut slow = TcpStream::connect(address).expect("taken");
        slow.write_all(b"GET /long HTTP/1.1\r\n\r\n").expect("sent");
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").ends_with("content"));
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).expect("an answer");
        assert!(answer.len() > BYTES);
    }
}
