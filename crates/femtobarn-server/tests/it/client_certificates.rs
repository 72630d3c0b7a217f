//! Certificates of clients, with `root://`, HTTP and gRPC: the names in them, the refused ones, and the errors that
//! clients get.

use std::path::PathBuf;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, ErrorKind};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::auth::RoleConfig;
use femtobarn_server::config::{Allowed, Config};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use serde_json::json;
use xrd::Location;
use xrd::client::{ClientCertificate, Options, Token, Url};
use xrd::flags::OpenOptions;

use crate::tokens::Guarded;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A server that asks clients for certificates, and the authorities that sign these.
struct CertifiedClients {
    guarded: Guarded,
    authority: Authority,
    stranger: Authority,
}

/// The rights of a client by one protocol, or the refusal of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Access {
    Refused(String),
    Denied,
    Reads,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A list that revokes the certificate with this number.
fn revoking(authority: &Authority, number: u64) -> String {
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(number),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2090, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(authority).unwrap().pem().unwrap()
}

impl CertifiedClients {
    fn start(set: impl FnOnce(&mut Config)) -> Self {
        let (authority, stranger) = (authority("authority"), authority("stranger"));
        let role = |certificate: &str| RoleConfig {
            rights: vec!["storage.read:/".to_owned()],
            certificates: vec![certificate.to_owned()],
            ..RoleConfig::default()
        };
        let guarded = Guarded::start_with(|config| {
            let at = |name: &str| config.tls.certificate.with_file_name(name);
            std::fs::write(at("clients"), authority.pem()).unwrap();
            std::fs::write(at("revoked"), revoking(&authority, 7)).unwrap();
            (config.tls.clients, config.tls.revoked) = (at("clients"), at("revoked"));
            config.auth.anonymous = Allowed::Nothing;
            config.roles.insert("whole".to_owned(), role("/O=lhc/CN=ann"));
            config.roles.insert("last".to_owned(), role("CN=bob"));
            set(config);
        });
        CertifiedClients { guarded, authority, stranger }
    }

    /// A certificate for a subject with this number.
    fn certificate(
        &self,
        (organisation, name): (&str, &str),
        number: u64,
        change: impl FnOnce(&mut CertificateParams, &mut bool),
    ) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organisation);
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(number));
        let mut is_strange = false;
        change(&mut params, &mut is_strange);
        let by = if is_strange { &self.stranger } else { &self.authority };
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, by).unwrap();
        let at =
            |kind: &str| -> PathBuf { self.guarded.folder.path().join(format!("{kind}{number}")) };
        std::fs::write(at("certificate"), made.pem()).unwrap();
        std::fs::write(at("key"), key.serialize_pem()).unwrap();
        ClientCertificate { certificate: at("certificate"), key: at("key") }
    }

    fn over_root(&self, own: &ClientCertificate, token: Option<String>) -> Access {
        let url = Url::parse(&self.guarded.url("roots", "/")).unwrap();
        let options = Options {
            certificate: Some(own.clone()),
            token: token.map(Token),
            find_token: || None,
            authorities: Some(self.guarded.certificate.clone()),
            ..Options::default()
        };
        let client = match xrd::client::blocking::Client::connect(&url, options) {
            Ok(client) => client,
            Err(error) => return Access::Refused(error.to_string()),
        };
        match client.open(&Location::new("/store/file").unwrap(), OpenOptions::READ) {
            Ok(_) => Access::Reads,
            Err(_) => Access::Denied,
        }
    }

    fn catalogue(
        &self,
        own: &ClientCertificate,
        token: Option<String>,
    ) -> femtobarn_catalog::Result<RemoteCatalogue> {
        let read = |file: &PathBuf| std::fs::read(file).unwrap();
        let options = ConnectOptions {
            token,
            identity: Some((read(&own.certificate), read(&own.key))),
            certificate: Some(read(&self.guarded.certificate)),
            patience: Duration::from_secs(60),
            ..ConnectOptions::default()
        };
        RemoteCatalogue::connect(&self.guarded.url("roots", "/lhc.fed"), &options)
    }

    fn over_grpc(&self, own: &ClientCertificate, token: Option<String>) -> Access {
        match self.catalogue(own, token).and_then(|catalogue| catalogue.head()) {
            Ok(_) => Access::Reads,
            Err(error) if error.kind() == ErrorKind::Denied => Access::Denied,
            Err(error) => Access::Refused(error.to_string()),
        }
    }

    fn over_http(&self, own: &ClientCertificate, token: Option<String>) -> Access {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let asked =
            self.guarded.try_ask("GET", "/store/file", &token.unwrap_or_default(), "", Some(own));
        match asked {
            Ok(answer) if answer.starts_with("HTTP/1.1 200") => Access::Reads,
            Ok(answer) if answer.starts_with("HTTP/1.1 403") => Access::Denied,
            Ok(answer) => panic!("{answer}"),
            Err(error) => Access::Refused(error.to_string()),
        }
    }

    fn accesses(&self, own: &ClientCertificate, token: Option<String>) -> [Access; 3] {
        [
            self.over_root(own, token.clone()),
            self.over_http(own, token.clone()),
            self.over_grpc(own, token),
        ]
    }
}

#[test]
fn certificates_of_clients_name_subjects_of_roles() {
    let clients = CertifiedClients::start(|_| {});
    let plain = |subject, number| clients.certificate(subject, number, |_, _| {});
    let all = |access: Access| [access.clone(), access.clone(), access];
    for (subject, access) in [
        (("lhc", "ann"), Access::Reads),
        (("other", "ann"), Access::Denied),
        (("lhc", "bob"), Access::Reads),
        (("lhc", "x/CN=bob"), Access::Denied),
        (("lhc/CN=ann", "x"), Access::Denied),
        (("lhc", "Bob"), Access::Denied),
    ] {
        assert_eq!(clients.accesses(&plain(subject, 1), None), all(access), "{subject:?}");
    }
    // A token counts in the place of the certificate, whatever that may do.
    let ann = plain(("lhc", "ann"), 1);
    let none = clients.guarded.token("storage.read:/elsewhere");
    assert_eq!(clients.accesses(&ann, Some(none)), all(Access::Denied));
    let reads = clients.guarded.token("storage.read:/");
    assert_eq!(clients.accesses(&plain(("x", "y"), 2), Some(reads)), all(Access::Reads));
    // Clients send any token that they find: a token for other servers does not take the certificate's rights away.
    let others = json!({"iss": "https://elsewhere.example", "scope": "storage.read:/"});
    let others = clients.guarded.token_with(&others);
    assert_eq!(clients.accesses(&ann, Some(others)), all(Access::Reads));
}

/// Each of these logins once left a session that never ended.
#[test]
fn certificates_without_a_readable_name_begin_no_session() {
    let clients = CertifiedClients::start(|config| config.auth.anonymous = Allowed::Read);
    let own = clients.certificate(("lhc", "a\nb"), 1, |_, _| {});
    for access in [clients.over_root(&own, None), clients.over_http(&own, None)] {
        assert!(matches!(access, Access::Refused(_)), "{access:?}");
    }
    assert_eq!(clients.guarded.server.status().sessions.len(), 0);
}

/// Clients with such a key once could not connect at all.
#[test]
fn a_certificate_whose_key_cannot_be_used_is_not_shown() {
    let clients = CertifiedClients::start(|_| {});
    let own = clients.certificate(("lhc", "ann"), 5, |_, _| {});
    let key = std::fs::read_to_string(&own.key).unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    for unusable in [locked, other, String::new()] {
        std::fs::write(&own.key, unusable).unwrap();
        let reads = Some(clients.guarded.token("storage.read:/"));
        assert_eq!(clients.over_root(&own, reads.clone()), Access::Reads);
        assert_eq!(clients.over_grpc(&own, reads), Access::Reads);
        let Access::Refused(root) = clients.over_root(&own, None) else {
            panic!("it has no rights")
        };
        let error = clients.catalogue(&own, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        for what in [root, error.to_string()] {
            assert!(what.contains("certificate was not shown"), "{what}");
        }
    }
    std::fs::write(&own.key, key).unwrap();
    assert_eq!(clients.over_grpc(&own, None), Access::Reads);
}

#[test]
fn certificates_that_are_not_valid_are_refused_with_the_reason() {
    let clients = CertifiedClients::start(|config| config.auth.anonymous = Allowed::Read);
    let certificate = |number, change: fn(&mut CertificateParams, &mut bool)| {
        clients.certificate(("lhc", "ann"), number, change)
    };
    for (own, why) in [
        (certificate(3, |_, is_strange| *is_strange = true), "UnknownCA"),
        (certificate(4, |params, _| params.not_after = date_time_ymd(2025, 1, 1)), "Expired"),
        (certificate(7, |_, _| {}), "Revoked"),
    ] {
        for access in clients.accesses(&own, None) {
            let Access::Refused(what) = access else { panic!("{why}: {access:?}") };
            assert!(what.contains(why), "{why}: {what}");
        }
    }
    let good = certificate(8, |_, _| {});
    assert_eq!(clients.over_root(&good, None), Access::Reads);
    // Another list counts from the next connection on.
    let list = revoking(&clients.authority, 8);
    std::fs::write(&clients.guarded.config.tls.revoked, list).unwrap();
    clients.guarded.server.reload(&clients.guarded.config).unwrap();
    assert!(matches!(clients.over_root(&good, None), Access::Refused(_)));
    assert_eq!(clients.over_root(&certificate(7, |_, _| {}), None), Access::Reads);
    std::fs::write(&clients.guarded.config.tls.revoked, "no list").unwrap();
    let wrong = clients.guarded.server.reload(&clients.guarded.config).unwrap_err();
    assert!(wrong.iter().any(|what| what.contains("tls.revoked")), "{wrong:?}");
}
