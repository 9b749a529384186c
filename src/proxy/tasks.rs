//! Background work that ends with its owner.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// Tasks that are aborted when the last clone goes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Waits until every task has ended; tasks may start others meanwhile.
    pub(crate) async fn finished(&self) {
        loop {
            let mut running =
                std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if running.is_empty() {
                return;
            }
            while running.join_next().await.is_some() {}
        }
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
