//! Encryption of a connection, and the check of the server's certificate.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use super::address::{PostgresAddress, TlsMode};
use super::failure::Cause;

/// Asks the server whether it can encrypt, and begins that if it can and the URL wants it; none if it stays plain.
pub(super) fn encrypt(
    socket: &mut TcpStream,
    address: &PostgresAddress,
    host: &str,
) -> Result<Option<ClientConnection>, Cause> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    // Exactly one byte: bytes that follow it in the clear are not the server's.
    let mut answer = [0];
    let asked = socket.write_all(&request).and_then(|()| socket.read_exact(&mut answer));
    asked.map_err(|error| Cause::of_socket(&error))?;
    match answer[0] {
        b'S' => {}
        b'N' if address.tls == TlsMode::Prefer => return Ok(None),
        b'N' => {
            let what =
                "it does not encrypt, and sslmode in the URL demands that; set ssl = on there";
            return Err(Cause::Untrusted(what.to_owned()));
        }
        _ => {
            let what = format!("port {} of {host} is not PostgreSQL's", peer_port(socket));
            return Err(Cause::Untrusted(what));
        }
    }
    let name = match ServerName::try_from(host.to_owned()) {
        Ok(name) => name,
        Err(_) if address.tls == TlsMode::VerifyFull => {
            let what =
                format!("{host:?} is no name that a certificate can have (sslmode=verify-full)");
            return Err(Cause::Untrusted(what));
        }
        // The name is not checked, and an address is not sent.
        Err(_) => ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()),
    };
    let unusable = |error: rustls::Error| Cause::Untrusted(format!("TLS cannot be used: {error}"));
    let mut client = ClientConnection::new(configuration(address)?, name).map_err(unusable)?;
    while client.is_handshaking() {
        let done = client.complete_io(socket);
        done.map_err(|error| handshake_failure(&error, address, host))?;
    }
    Ok(Some(client))
}

fn peer_port(socket: &TcpStream) -> u16 {
    socket.peer_addr().map_or(0, |place| place.port())
}

/// The reason of a failed handshake, and the remedy.
fn handshake_failure(error: &io::Error, address: &PostgresAddress, host: &str) -> Cause {
    let why = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(why) = why else { return Cause::of_socket(error) };
    let rustls::Error::InvalidCertificate(why) = why else {
        return Cause::Untrusted(format!("TLS failed: {why}"));
    };
    let authorities = match &address.authorities {
        Some(file) => format!("an authority of sslrootcert {}", file.display()),
        None => {
            "an authority that this machine trusts; name that which did as sslrootcert in the URL"
                .to_owned()
        }
    };
    Cause::Untrusted(match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("its certificate is not signed by {authorities}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; renew it there".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; compare the clocks of both machines".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is for another name than {host}; use a name that it has, or sslmode=verify-ca"
            )
        }
        other => format!("its certificate is not accepted ({other})"),
    })
}

fn configuration(address: &PostgresAddress) -> Result<Arc<ClientConfig>, Cause> {
    let provider = Arc::new(ring::default_provider());
    let unusable = |error: &dyn std::fmt::Display| {
        Cause::Untrusted(format!("TLS cannot be used on this machine: {error}"))
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let is_checked = match address.tls {
        TlsMode::VerifyAuthority | TlsMode::VerifyFull => true,
        TlsMode::Require => address.authorities.is_some(),
        TlsMode::Disable | TlsMode::Prefer => false,
    };
    let trusted = match &address.authorities {
        _ if !is_checked => None,
        Some(file) => Some(authorities_in(file)?),
        None => Some(authorities_of_the_system()?),
    };
    let config = match trusted {
        Some(roots) if address.tls == TlsMode::VerifyFull => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(|error| unusable(&error))?;
            builder.with_webpki_verifier(verifier)
        }
        roots => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName { roots, provider })),
    };
    Ok(Arc::new(config.with_no_client_auth()))
}

fn authorities_in(file: &Path) -> Result<RootCertStore, Cause> {
    let bad = |error: &dyn std::fmt::Display| {
        Cause::Untrusted(format!("sslrootcert {} cannot be used: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))? {
        roots.add(found.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() { Err(bad(&"it has no certificate")) } else { Ok(roots) }
}

fn authorities_of_the_system() -> Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let what = "this machine trusts no authority; name the server's as sslrootcert in the URL";
        return Err(Cause::Untrusted(what.to_owned()));
    }
    Ok(roots)
}

/// Accepts certificates for any name, as `sslmode` below `verify-full` does: those of the authorities, if there are some.
#[derive(Debug)]
struct AnyName {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let parsed = ParsedCertificate::try_from(certificate)?;
            let known = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, others, now, known)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
