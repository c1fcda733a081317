//! TLS to upstreams: the platform's roots plus `ca_file`, and no way to turn verification off.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// One config per set of protocols offered.
pub struct Configs {
    /// Offers h2 and http/1.1.
    pub h2: Arc<ClientConfig>,
    /// Offers http/1.1 only.
    pub h1: Arc<ClientConfig>,
}

/// Read the roots. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the platform's; `ca_file` comes on top of either.
pub fn configs(ca_file: Option<&Path>) -> Result<Configs, String> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        for cert in CertificateDer::pem_file_iter(path).map_err(|why| unreadable(path, &why))? {
            let cert = cert.map_err(|why| unreadable(path, &why))?;
            roots.add(cert).map_err(|why| format!("ca_file {}: not a usable root: {why}", path.display()))?;
        }
    }
    if roots.is_empty() {
        return Err("no root certificates: the platform has none and no ca_file is set".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut h1 = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| format!("TLS: {why}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    h1.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut h2 = h1.clone();
    h2.alpn_protocols.insert(0, b"h2".to_vec());
    Ok(Configs { h2: Arc::new(h2), h1: Arc::new(h1) })
}

fn unreadable(path: &Path, why: &dyn std::fmt::Debug) -> String {
    format!("ca_file {}: no readable PEM certificate: {why:?}", path.display())
}
