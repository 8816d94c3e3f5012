//! The walk on a database, through the public API.

use fsm::SendOutcome;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_core::decide::operate::Act as OperateRequest;
use fsm_core::machine::Machine;
use fsm_runtime::admin::{Admin, Opening};

use crate::model::queue::KEYS;
use crate::sight;
use crate::walk::{Act, Begin, Go, Halt, INBOX, Stop, Walk};

pub struct Real {
    pub bed: TestBed,
    admin: Admin,
}

impl Real {
    pub async fn sqlite() -> Real {
        Real::on(builder().sqlite().await).await
    }

    pub async fn postgres() -> Real {
        Real::on(builder().postgres().await).await
    }

    async fn on(bed: TestBed) -> Real {
        let admin = Admin::open(Opening::inside(&bed)).await.expect("the test bed is open");
        Real { bed, admin }
    }

    /// Returns the machine as the runtime describes it.
    pub fn machine(&self) -> Machine {
        self.admin.machine("walk").expect("the test bed was started with it").machine.clone()
    }

    /// Returns the outcome of a send, or the reason of a refusal.
    pub async fn act(&self, act: &Act) -> Result<Option<SendOutcome>, String> {
        let walks = self.bed.machine::<Walk>();
        let answer = match act {
            Act::Advance(span) => {
                self.bed.advance(*span).await;
                Ok(None)
            }
            Act::Operate { key, act } => {
                let key = KEYS[*key];
                let operating = match act {
                    OperateRequest::Retry => walks.retry(key),
                    OperateRequest::Skip => walks.skip(key),
                    OperateRequest::Pause => walks.pause(key),
                    OperateRequest::Resume => walks.resume(key),
                    OperateRequest::SetRetry(policy) => walks.set_retry(key, (**policy).clone()),
                    OperateRequest::Cancel => walks.cancel(key, ""),
                };
                operating.reason("because").actor("ada").await.map(|()| None)
            }
            Act::Send { key, event, script, dedup, after, reject_if_busy } => {
                let key = KEYS[*key];
                let mut sending = match *event {
                    "Begin" => walks.send(key, Begin(*script)),
                    "Go" => walks.send(key, Go(*script)),
                    "Halt" => walks.send(key, Halt(*script)),
                    _ => walks.send(key, Stop(*script)),
                };
                if let Some(n) = dedup {
                    sending = sending.dedup(format!("d{n}"));
                }
                if let Some(after) = after {
                    sending = sending.after(*after);
                }
                if *reject_if_busy {
                    sending = sending.reject_if_busy();
                }
                sending.await.map(|sent| Some(sent.outcome))
            }
        };
        self.bed.run_until_idle().await;
        answer.map_err(|error| error.to_string())
    }

    /// Returns the lines of this instance.
    pub async fn seen(&self, key: usize) -> Vec<String> {
        match self.admin.details("walk", KEYS[key]).await {
            Ok(details) => sight::lines(&details),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => panic!("an instance cannot be read: {error}"),
        }
    }
}

fn builder() -> TestBedBuilder {
    TestBed::builder().only::<Walk>().with(|builder| builder.inbox_limit(INBOX))
}
