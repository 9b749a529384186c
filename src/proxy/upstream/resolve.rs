//! Resolves permitted names on the host, once a rule has allowed them.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;

use hickory_resolver::TokioResolver;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::rules::ServerName;

/// A running look-up.
pub type Resolving<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Finds the addresses of a name, outside of the jail.
pub trait Resolve: Send + Sync + fmt::Debug {
    fn resolve<'a>(&'a self, name: &'a ServerName) -> Resolving<'a>;
}

/// A name without addresses.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    #[error("the name does not exist or has no address")]
    NotFound,
    #[error("the host's resolver did not answer")]
    Unanswered(#[source] NetError),
}

/// The resolver that the host is configured with, read at the first look-up: many runs never need
/// it. It is read anew after a failure, since the host may have moved to another network.
#[derive(Default)]
pub struct SystemResolver {
    resolver: Mutex<Option<TokioResolver>>,
}

impl SystemResolver {
    async fn look_up(&self, name: &ServerName) -> Result<Vec<IpAddr>, NetError> {
        let resolver = {
            let mut known = self.resolver.lock().await;
            match known.as_ref() {
                Some(resolver) => resolver.clone(),
                None => known.insert(build().await?).clone(),
            }
        };
        let mut fqdn = Name::from_ascii(name.as_str())?;
        // Without the dot, the host's search domains would be tried too.
        fqdn.set_fqdn(true);
        let found = resolver.lookup_ip(fqdn).await;
        if found.as_ref().is_err_and(|error| !error.is_no_records_found()) {
            self.resolver.lock().await.take();
        }
        Ok(found?.iter().collect())
    }
}

async fn build() -> Result<TokioResolver, NetError> {
    // Reads files.
    spawn_blocking(|| TokioResolver::builder_tokio()?.build())
        .await
        .unwrap_or(Err(NetError::Message("the resolver's configuration was not read")))
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a ServerName) -> Resolving<'a> {
        Box::pin(async {
            match self.look_up(name).await {
                Ok(addresses) if addresses.is_empty() => Err(ResolveError::NotFound),
                Ok(addresses) => Ok(addresses),
                Err(error) if error.is_no_records_found() => Err(ResolveError::NotFound),
                Err(error) => Err(ResolveError::Unanswered(error)),
            }
        })
    }
}

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemResolver").finish_non_exhaustive()
    }
}
