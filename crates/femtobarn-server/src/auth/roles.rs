//! Roles: rights that the settings give to subjects and groups of token issuers, and to names in clients' certificates.
//!
//! 1. If a token states its rights here itself, by its scope, only these count. Roles are for the other tokens,
//!    following the WLCG profile: an issuer either grants capabilities, or states an identity.
//! 2. A subject or group of a token counts together with its issuer. The subject of a certificate counts alone: each
//!    authority in `tls.clients` vouches for any subject.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CertifiedName, Issuer, Rights};

/// A role: rights, and the clients that have them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct RoleConfig {
    /// The rights, in words of scopes, with paths of the server.
    pub rights: Vec<String>,
    /// The issuer of the subjects and groups.
    pub issuer: String,
    /// Subjects (`sub`) of tokens.
    pub subjects: Vec<String>,
    /// Groups (`wlcg.groups`) in tokens.
    pub groups: Vec<String>,
    /// Subjects of clients' certificates: whole names, or their last part, `CN=alice`, whichever authority has signed
    /// them.
    pub certificates: Vec<String>,
}

/// All roles.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    roles: Vec<(RoleConfig, Rights)>,
}

impl Roles {
    /// The roles in the settings, by name, for these issuers.
    ///
    /// # Errors
    /// A text that names the setting, with advice for the operator.
    pub fn new(roles: &BTreeMap<String, RoleConfig>, issuers: &[Issuer]) -> Result<Self, String> {
        let roles = roles.iter().map(|(name, role)| {
            role.check(issuers).map_err(|what| format!("roles.{name}.{what}"))?;
            let rights = Rights::of_words(&role.rights);
            Ok((role.clone(), rights.map_err(|what| format!("roles.{name}.rights: {what}"))?))
        });
        Ok(Roles { roles: roles.collect::<Result<_, String>>()? })
    }

    /// The rights of a token's client.
    pub(super) fn of_token(&self, issuer: &str, subject: &str, groups: &[&str]) -> Rights {
        self.rights(|role| {
            role.issuer == issuer
                && (role.subjects.iter().any(|it| it == subject)
                    || role.groups.iter().any(|it| groups.contains(&&**it)))
        })
    }

    /// The rights of a client with a certificate.
    pub(super) fn of_certificate(&self, name: &CertifiedName) -> Rights {
        self.rights(|role| {
            let own = [Some(&name.subject), name.common_name.as_ref()];
            role.certificates.iter().any(|it| own.contains(&Some(it)))
        })
    }

    fn rights(&self, has: impl Fn(&RoleConfig) -> bool) -> Rights {
        let own = self.roles.iter().filter(|(role, _)| has(role));
        own.fold(Rights::default(), |all, (_, rights)| all.and(rights))
    }
}

impl RoleConfig {
    fn check(&self, issuers: &[Issuer]) -> Result<(), String> {
        let names_subjects = !(self.subjects.is_empty() && self.groups.is_empty());
        if self.rights.is_empty() {
            return Err("rights: name some, such as \"storage.read:/lhc.fed\"".to_owned());
        }
        if !names_subjects && self.certificates.is_empty() {
            let what =
                "subjects: name the holders of the role, in subjects, groups or certificates";
            return Err(what.to_owned());
        }
        let is_name = |it: &String| it.starts_with('/') || it.starts_with("CN=");
        if let Some(wrong) = self.certificates.iter().find(|it| !is_name(it)) {
            return Err(format!(
                "certificates: {wrong:?} is not a certificate subject: write \"/DC=org/DC=example/CN=alice\" or \
                 \"CN=alice\""
            ));
        }
        if names_subjects && !issuers.iter().any(|it| it.issuer == self.issuer) {
            let named = &self.issuer;
            return Err(format!(
                "issuer: {named:?} vouches for the subjects and groups, but is not in auth.issuer; add it there"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Action;

    fn issuer(name: &str) -> Issuer {
        Issuer { issuer: name.to_owned(), keys: Default::default(), base: String::new() }
    }

    fn roles(text: &str) -> Result<Roles, String> {
        let roles: BTreeMap<String, RoleConfig> =
            toml::from_str(text).map_err(|error| error.to_string())?;
        Roles::new(&roles, &[issuer("https://one.example"), issuer("https://two.example")])
    }

    #[test]
    fn a_role_is_for_subjects_and_groups_of_its_issuer() {
        let roles = roles(
            r#"
            reader = { rights = ["storage.read:/a"], issuer = "https://one.example", groups = ["/cms"] }
            tagger = { rights = ["femtobarn.tag:/a"], issuer = "https://one.example", subjects = ["ann"] }
            "#,
        );
        let roles = roles.expect("the roles are valid");
        let one = "https://one.example";
        for (issuer, subject, groups, reads, tags) in [
            (one, "ann", &["/cms"][..], true, true),
            (one, "ann", &[], false, true),
            (one, "bob", &["/atlas", "/cms"], true, false),
            (one, "bob", &["/cms/production", "/CMS", "cms"], false, false),
            (one, "/cms", &["ann"], false, false),
            ("https://two.example", "ann", &["/cms"], false, false),
        ] {
            let rights = roles.of_token(issuer, subject, groups);
            let has = (rights.may(Action::Read, b"/a"), rights.may(Action::Tag, b"/a"));
            assert_eq!(has, (reads, tags), "{issuer} {subject} {groups:?}");
        }
    }

    #[test]
    fn incomplete_roles_are_refused_with_the_remedy() {
        for (wrong, why) in [
            ("a = { subjects = [\"ann\"] }", "roles.a.rights: name some"),
            ("a = { rights = [\"storage.read:/\"] }", "roles.a.subjects: name the holders"),
            ("a = { rights = [\"storage.read:/\"], groups = [\"/cms\"] }", "is not in auth.issuer"),
            (
                "a = { rights = [\"all\"], groups = [\"/cms\"], issuer = \"https://one.example\" }",
                "roles.a.rights: \"all\" is not a right",
            ),
            (
                "a = { rights = [\"storage.read:/\"], certificates = [\"alice\"] }",
                "roles.a.certificates: \"alice\" is not a certificate subject",
            ),
            ("a = { right = [] }", "unknown field `right`"),
        ] {
            let refused = roles(wrong).err().unwrap_or_default();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }
}
