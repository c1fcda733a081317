//! Scripted upstreams on real ports, with and without TLS, and a forward proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Upstream;
use super::upstream::Side;

impl Side for TcpStream {
    fn reset(self) {
        // A close with this set is a reset.
        let _ = close_is_reset(&self);
    }
}

/// The one socket option that makes a close a reset.
#[allow(deprecated)] // it blocks on close for the time given, which is none
fn close_is_reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_linger(Some(Duration::ZERO))
}

impl Side for TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }
}

/// Serve an upstream on a free port.
pub async fn listen(upstream: &Arc<Upstream>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let upstream = upstream.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(number) = upstream.dialed() {
                tokio::spawn(upstream.clone().serve(stream, number));
            }
        }
    });
    address
}

/// Serve an upstream over TLS on a free port, offering these protocols.
pub async fn listen_tls(upstream: &Arc<Upstream>, certificate: &Certificate, protocols: &[&str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let acceptor = certificate.acceptor(protocols);
    let upstream = upstream.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let Ok(number) = upstream.dialed() else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    upstream.serve_h2(stream, number).await;
                } else {
                    upstream.serve(stream, number).await;
                }
            });
        }
    });
    address
}

/// An authority of its own and a certificate by it for `localhost` and `api.test`.
pub struct Certificate {
    dir: tempfile::TempDir,
    chain: rcgen::Certificate,
    key: KeyPair,
}

impl Certificate {
    pub fn new() -> Certificate {
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let root = authority.self_signed(&authority_key).expect("a root");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".into(), "api.test".into()]).expect("parameters");
        let chain = params.signed_by(&key, &Issuer::new(authority, authority_key)).expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("ca.pem"), root.pem()).expect("a file");
        Certificate { dir, chain, key }
    }

    pub fn ca_file(&self) -> String {
        self.dir.path().join("ca.pem").display().to_string()
    }

    /// Paths of the certificate and its key, as PEM.
    pub fn files(&self) -> (String, String) {
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| self.dir.path().join(name));
        std::fs::write(&cert, self.chain.pem()).expect("a file");
        std::fs::write(&key, self.key.serialize_pem()).expect("a file");
        (cert.display().to_string(), key.display().to_string())
    }

    fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.chain.der().clone()], key)
            .expect("a certificate and its key");
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A forward proxy that leads every tunnel to one place, and keeps the heads that it was sent.
pub struct Forward {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Forward {
    pub async fn to(place: SocketAddr) -> Forward {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let log = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(tunnel(stream, place, log.clone()));
            }
        });
        Forward { address, heads }
    }

    /// The heads since the last time.
    pub fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut self.heads.lock().unwrap())
    }
}

async fn tunnel(mut client: TcpStream, place: SocketAddr, log: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    log.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let mut server = TcpStream::connect(place).await.expect("the place is there");
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.expect("a client");
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
