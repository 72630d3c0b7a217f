//! Names in the certificates of clients, which TLS has verified already.
//!
//! A subject is written in the grid's form, `/DC=org/DC=example/CN=alice`, with a backslash before a slash within a
//! value, so that one value cannot look like several.

use std::time::{SystemTime, UNIX_EPOCH};

use der::asn1::{AnyRef, GeneralizedTime, ObjectIdentifier, UtcTime};
use der::{ErrorKind, Reader, SliceReader, Tag, Tagged};

/// The short names of the parts of a subject.
const PARTS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// A name that a certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedName {
    /// The subject.
    pub subject: String,
    /// The last part of the name, if that is a common name: `CN=alice`.
    pub common_name: Option<String>,
    /// The authority that has signed the certificate.
    pub issuer: String,
    /// When the certificate expires.
    pub until: SystemTime,
}

impl CertifiedName {
    /// The name in a certificate.
    ///
    /// # Errors
    /// A text, if the subject is empty, or no printable text.
    pub fn of(certificate: &[u8]) -> Result<Self, String> {
        let parsed = parsed(certificate);
        let name = parsed.map_err(|_| "a client's certificate cannot be read".to_owned())?;
        if name.subject.is_empty() || name.subject.chars().any(char::is_control) {
            return Err("the subject of a client's certificate is not printable text".to_owned());
        }
        Ok(name)
    }
}

/// RFC 5280, 4.1: version, serial number, algorithm, issuer, validity, subject.
fn parsed(certificate: &[u8]) -> der::Result<CertifiedName> {
    let mut outer = SliceReader::new(certificate)?;
    let mut inner = contents(&mut outer, Tag::Sequence)?;
    let mut body = contents(&mut inner, Tag::Sequence)?;
    let first: AnyRef<'_> = body.decode()?;
    if first.tag() != Tag::Integer {
        // That was the version; this is the serial number.
        body.decode::<AnyRef<'_>>()?;
    }
    body.decode::<AnyRef<'_>>()?;
    let (issuer, _) = name(contents(&mut body, Tag::Sequence)?)?;
    let mut validity = contents(&mut body, Tag::Sequence)?;
    validity.decode::<AnyRef<'_>>()?;
    let last: AnyRef<'_> = validity.decode()?;
    let since_epoch = match last.tag() {
        Tag::UtcTime => last.decode_as::<UtcTime>()?.to_unix_duration(),
        _ => last.decode_as::<GeneralizedTime>()?.to_unix_duration(),
    };
    let (subject, common_name) = name(contents(&mut body, Tag::Sequence)?)?;
    Ok(CertifiedName { subject, common_name, issuer, until: UNIX_EPOCH + since_epoch })
}

/// A name, and its last part if that is a common name.
fn name(mut parts: SliceReader<'_>) -> der::Result<(String, Option<String>)> {
    let (mut text, mut last) = (String::new(), None);
    while !parts.is_finished() {
        let mut set = contents(&mut parts, Tag::Set)?;
        while !set.is_finished() {
            let mut pair = contents(&mut set, Tag::Sequence)?;
            let kind = pair.decode::<ObjectIdentifier>()?.to_string();
            let value: AnyRef<'_> = pair.decode()?;
            let is_text =
                matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
            let value = std::str::from_utf8(value.value()).ok().filter(|_| is_text);
            let value = value.ok_or(ErrorKind::Failed)?;
            let value = value.replace('\\', "\\\\").replace('/', "\\/");
            let known = PARTS.iter().find(|(id, _)| *id == kind).map(|(_, short)| *short);
            let part = format!("{}={value}", known.unwrap_or(&kind));
            text.push('/');
            text.push_str(&part);
            last = Some(part).filter(|_| known == Some("CN"));
        }
    }
    Ok((text, last))
}

/// The contents of a value with this tag.
fn contents<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<SliceReader<'a>> {
    let value: AnyRef<'a> = reader.decode()?;
    value.tag().assert_eq(tag)?;
    SliceReader::new(value.value())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn the_subject_of_a_certificate_has_one_text_for_each_of_its_values() {
        let component = || DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]);
        let plain = certificate(&[(component(), "cern"), (DnType::CommonName, "Ann Lee")]);
        let name = CertifiedName::of(&plain).expect("a name");
        assert_eq!(name.subject, "/DC=cern/CN=Ann Lee");
        assert_eq!(name.common_name.as_deref(), Some("CN=Ann Lee"));
        assert_eq!(name.issuer, name.subject);
        let seconds = name.until.duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        assert_eq!(seconds, 2_208_988_800);

        let sly = certificate(&[(DnType::CommonName, "bob/CN=Ann Lee\\")]);
        let name = CertifiedName::of(&sly).expect("a name");
        assert_eq!(name.subject, "/CN=bob\\/CN=Ann Lee\\\\");
        let other = certificate(&[(DnType::CommonName, "ann"), (DnType::OrganizationName, "x")]);
        let name = CertifiedName::of(&other).expect("a name");
        assert_eq!((&*name.subject, name.common_name), ("/CN=ann/O=x", None));
    }

    #[test]
    fn names_that_are_no_printable_text_are_refused() {
        for wrong in [certificate(&[]), certificate(&[(DnType::CommonName, "a\nb")])] {
            assert!(
                CertifiedName::of(&wrong).is_err_and(|what| what.contains("not printable text"))
            );
        }
        let good = certificate(&[(DnType::CommonName, "ann")]);
        for end in 0..good.len().min(200) {
            assert!(CertifiedName::of(&good[..end]).is_err(), "{end}");
        }
    }
}
