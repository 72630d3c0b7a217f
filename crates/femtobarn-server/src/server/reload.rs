//! Settings that change while a server runs: certificates, the authorities of clients' certificates, the keys of token
//! issuers, and the log's level. A reload also opens the audit log again.

use std::sync::Arc;

use crate::auth::{AuditLog, Tokens};
use crate::config::{Config, LogConfig, TlsConfig};
use crate::logging;
use crate::tls::Certificates;

/// The settings in force, and the parts of a server that accept new ones.
pub(super) struct ReloadableSettings {
    pub config: Config,
    pub certificates: Option<Arc<Certificates>>,
    pub tokens: Option<Arc<Tokens>>,
    pub audit: Option<Arc<AuditLog>>,
}

/// The changes of a reload, and the reasons of the refused ones.
#[derive(Default)]
pub(super) struct ReloadOutcome {
    pub taken: Vec<String>,
    pub wrong: Vec<String>,
}

impl ReloadableSettings {
    /// Applies the settings of a new configuration that can change. A refused setting keeps its old value.
    pub(super) fn reload(&mut self, new: &Config) -> ReloadOutcome {
        let mut outcome = ReloadOutcome::default();
        self.reload_certificates(new, &mut outcome);
        if let Some(tokens) = &self.tokens {
            match tokens.read_again() {
                Ok(count) => outcome.taken.push(format!("the keys of {count} token issuers")),
                Err(what) => outcome.wrong.extend(what),
            }
        }
        if let Some(audit) = &self.audit {
            match audit.reopen() {
                Ok(()) => outcome.taken.push(format!("the audit log {}", audit.path().display())),
                Err(what) => outcome.wrong.push(what),
            }
        }
        self.reload_log_level(new, &mut outcome);
        if self.needs_restart(new) {
            outcome.wrong.push("other settings changed, too; restart the server".to_owned());
        }
        outcome
    }

    fn reload_certificates(&mut self, new: &Config, outcome: &mut ReloadOutcome) {
        let Some(certificates) = &self.certificates else { return };
        if !new.tls.has_certificate() {
            return;
        }
        match certificates.read_again(&new.tls) {
            Ok(()) => {
                outcome.taken.push(format!("the certificate {}", new.tls.certificate.display()));
                self.config.tls.certificate.clone_from(&new.tls.certificate);
                self.config.tls.key.clone_from(&new.tls.key);
                if has_clients(&self.config) && has_clients(new) {
                    outcome
                        .taken
                        .push(format!("the authorities of clients {}", new.tls.clients.display()));
                    self.config.tls.clients.clone_from(&new.tls.clients);
                    self.config.tls.revoked.clone_from(&new.tls.revoked);
                }
            }
            Err(what) => outcome.wrong.push(what),
        }
    }

    fn reload_log_level(&mut self, new: &Config, outcome: &mut ReloadOutcome) {
        if self.config.log.level == new.log.level {
            return;
        }
        match logging::set_level(&new.log) {
            Ok(true) => {
                outcome.taken.push(format!("log.level {}", new.log.level));
                self.config.log.level.clone_from(&new.log.level);
            }
            Ok(false) => outcome
                .wrong
                .push("log.level: the log was set up by the embedding program".to_owned()),
            Err(what) => outcome.wrong.push(what),
        }
    }

    /// Whether settings differ that are read only at the start. Refused changes of other settings were reported
    /// already.
    fn needs_restart(&self, new: &Config) -> bool {
        let old = &self.config;
        let tls = TlsConfig { required: new.tls.required, off: new.tls.off, ..old.tls.clone() };
        let log = LogConfig { format: new.log.format, ..old.log.clone() };
        *old != (Config { tls, log, ..new.clone() })
            || old.tls.has_certificate() != new.tls.has_certificate()
            || has_clients(old) != has_clients(new)
    }
}

fn has_clients(config: &Config) -> bool {
    !config.tls.clients.as_os_str().is_empty()
}
