//! The rule which addresses may be connected to, applied to each address of a name.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// Refuses an address of a host, with the reason as a text.
pub type AddressRule = Arc<dyn Fn(&str, IpAddr) -> Result<(), String> + Send + Sync>;

/// The rule that admits every address.
pub fn any_address() -> AddressRule {
    Arc::new(|_, _| Ok(()))
}

/// Looks up names, and leaves out the addresses that the rule refuses.
#[derive(Clone)]
pub struct AdmittedAddresses {
    rule: AddressRule,
}

impl AdmittedAddresses {
    pub(crate) fn new(rule: AddressRule) -> Self {
        AdmittedAddresses { rule }
    }
}

impl std::fmt::Debug for AdmittedAddresses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AdmittedAddresses")
    }
}

impl Service<Name> for AdmittedAddresses {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let rule = Arc::clone(&self.rule);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            admitted(&rule, name.as_str(), found).map(Vec::into_iter)
        })
    }
}

/// The admitted addresses of a host.
fn admitted(
    rule: &AddressRule,
    host: &str,
    found: impl Iterator<Item = SocketAddr>,
) -> io::Result<Vec<SocketAddr>> {
    let mut refusal = format!("{host} has no address");
    let admitted: Vec<_> = found
        .filter(|address| match rule(host, address.ip()) {
            Ok(()) => true,
            Err(why) => {
                refusal = why;
                false
            }
        })
        .collect();
    if admitted.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal));
    }
    Ok(admitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_admitted_addresses_are_left() {
        let rule: AddressRule =
            Arc::new(
                |host, address| {
                    if address.is_loopback() { Err(format!("{host} is here")) } else { Ok(()) }
                },
            );
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let both = [at("127.0.0.1:0"), at("192.0.2.1:0")];
        assert_eq!(admitted(&rule, "x", both.into_iter()).unwrap(), [at("192.0.2.1:0")]);
        let none = admitted(&rule, "x", [at("[::1]:0")].into_iter()).unwrap_err();
        assert_eq!(none.to_string(), "x is here");
    }
}
