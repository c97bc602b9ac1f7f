//! The smallest HTTP server that answers questions about figures: GET and HEAD, one request for each connection.
//!
//! Everything is bounded: a fixed number of threads, a short time and a small buffer for each request. Who is slow keeps one
//! thread for `PATIENCE`, and a node's lanes never.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

const THREADS: usize = 16;
/// Time for a request to arrive, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_millis(500);
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
pub fn serve(
    address: SocketAddr,
    page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let page = Arc::new(page);
    for _ in 0..THREADS {
        let (listener, page) = (listener.try_clone()?, page.clone());
        let work = move || {
            loop {
                let answered = listener.accept().and_then(|(stream, _)| answer(stream, &*page));
                if let Err(error) = answered {
                    tracing::debug!(%error, "a request for figures was not answered");
                    // Descriptors may be used up: others end meanwhile.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        Builder::new().name("metrics".into()).spawn(work)?;
    }
    Ok(address)
}

fn answer(mut stream: TcpStream, page: &dyn Fn(&str) -> Option<Page>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let plain = |body: &str| Page { content_type: "text/plain; charset=utf-8", body: format!("{body}\n") };
    let (status, page, with_body) = match request(&mut stream)? {
        None => ("400 Bad Request", plain("not a request that can be read"), true),
        Some((method, path)) => match (method.as_str(), page(&path)) {
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
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Method and path of the request; `None`: it is none.
fn request(stream: &mut TcpStream) -> io::Result<Option<(String, String)>> {
    let begun = Instant::now();
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let mut arrived = 0;
    while arrived < bytes.len() {
        let left = PATIENCE.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut bytes[arrived..])?;
        arrived += read;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes[..arrived]) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.unwrap_or("/").split('?').next().unwrap_or("/");
                return Ok(Some((request.method.unwrap_or("").to_owned(), path.to_owned())));
            }
            Ok(httparse::Status::Partial) if read > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
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
        let address = serve("127.0.0.1:0".parse().expect("an address"), page).expect("a server");
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

    #[test]
    fn who_says_nothing_is_given_up() {
        let page = |_: &str| Some(Page { content_type: "text/plain", body: "content".into() });
        let address = serve("127.0.0.1:0".parse().expect("an address"), page).expect("a server");
        let silent: Vec<TcpStream> = (0..THREADS * 2).map(|_| TcpStream::connect(address).expect("taken")).collect();
        let got = ask(address, b"GET / HTTP/1.1\r\n\r\n");
        assert!(got.ends_with("content"), "{got}");
        drop(silent);
    }
}
