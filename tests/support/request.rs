//! Requests as raw bytes.

/// A request to build.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    target: String,
    version: &'static str,
    host: Option<String>,
    lines: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    chunk: Option<usize>,
    trailers: Vec<(String, String)>,
}

/// A POST of a chat request, or of the body given later.
pub fn post(target: &str) -> Request {
    Request::new("POST", target).body(super::ASK)
}

pub fn get(target: &str) -> Request {
    Request::new("GET", target)
}

pub fn head(target: &str) -> Request {
    Request::new("HEAD", target)
}

pub fn delete(target: &str) -> Request {
    Request::new("DELETE", target)
}

impl Request {
    pub fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.into(),
            target: target.into(),
            version: "HTTP/1.1",
            host: Some("localhost".into()),
            lines: Vec::new(),
            body: Vec::new(),
            chunk: None,
            trailers: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Request {
        self.lines.push((name.into(), value.as_ref().to_vec()));
        self
    }

    pub fn host(self, host: &str) -> Request {
        Request { host: Some(host.into()), ..self }
    }

    pub fn http10(self) -> Request {
        Request { version: "HTTP/1.0", ..self }
    }

    pub fn body(self, body: impl AsRef<[u8]>) -> Request {
        Request { body: body.as_ref().to_vec(), ..self }
    }

    /// In chunks of this size.
    pub fn chunked(self, size: usize) -> Request {
        Request { chunk: Some(size), ..self }
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Request {
        self.trailers.push((name.into(), value.into()));
        self
    }

    /// The head's bytes.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        if let Some(host) = &self.host {
            bytes.extend(format!("Host: {host}\r\n").bytes());
        }
        for (name, value) in &self.lines {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        match self.chunk {
            Some(_) => bytes.extend(b"Transfer-Encoding: chunked\r\n"),
            None if self.method == "GET" || self.method == "HEAD" || self.method == "OPTIONS" => {}
            None => bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).bytes()),
        }
        bytes.extend(b"\r\n");
        bytes
    }

    /// The body's bytes, framed.
    pub fn body_bytes(&self) -> Vec<u8> {
        let Some(size) = self.chunk else { return self.body.clone() };
        let mut bytes = Vec::new();
        for chunk in self.body.chunks(size) {
            bytes.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        }
        bytes.extend(b"0\r\n");
        for (name, value) in &self.trailers {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        bytes
    }

    pub fn bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body_bytes()].concat()
    }
}
