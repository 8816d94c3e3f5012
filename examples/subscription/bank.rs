//! A stand-in for a bank. Requests with an idempotency key that it knows already change nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fsm::testing::Effects;

/// An error of the bank.
#[derive(Debug)]
pub enum BankError {
    /// The bank does not answer. It will answer later.
    Away,
    /// The card was declined. Another attempt would be declined too.
    Declined,
}

/// A bank. It declines cards whose number begins with `bad`.
#[derive(Clone, Default)]
pub struct Bank {
    /// All charges and refunds. A crash test lets the process die before and after each of them.
    pub booked: Effects,
    is_away: Arc<AtomicBool>,
}

impl Bank {
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    pub async fn charge(&self, idempotency_key: &str, customer: &str, card: &str) -> Result<(), BankError> {
        match card.starts_with("bad") {
            true => Err(BankError::Declined),
            false => self.book(idempotency_key, format!("{customer} pays")).await,
        }
    }

    pub async fn refund(&self, idempotency_key: &str, customer: &str) -> Result<(), BankError> {
        self.book(idempotency_key, format!("{customer} is refunded")).await
    }

    async fn book(&self, idempotency_key: &str, what: String) -> Result<(), BankError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(BankError::Away);
        }
        self.booked.keyed(idempotency_key, what).await;
        Ok(())
    }
}

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BankError::Away => "the bank is away",
            BankError::Declined => "the card was declined",
        })
    }
}

impl std::error::Error for BankError {}
