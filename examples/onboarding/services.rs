//! Stand-ins for the services of others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::{RetryAdvice, Retryable};

pub enum Risk {
    Low,
    High,
}

/// An error of the screening service. Each value is retried in its own way.
#[derive(Debug)]
pub enum ScreeningError {
    /// The service is away: the policy of the verb decides.
    Unavailable,
    /// The service limits the rate, and says how long to wait.
    TooManyRequests(Duration),
    /// The request is wrong. It will be wrong again.
    UnknownCountry(String),
}

impl Retryable for ScreeningError {
    fn retry(&self) -> RetryAdvice {
        match self {
            ScreeningError::Unavailable => RetryAdvice::Default,
            ScreeningError::TooManyRequests(wait) => RetryAdvice::After(*wait),
            ScreeningError::UnknownCountry(_) => RetryAdvice::Never,
        }
    }
}

fsm::retryable!(ScreeningError);

impl fmt::Display for ScreeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScreeningError::Unavailable => f.write_str("the screening service is away"),
            ScreeningError::TooManyRequests(wait) => write!(f, "the screening service asks to wait for {} s", wait.as_secs()),
            ScreeningError::UnknownCountry(country) => write!(f, "there is no country `{country}`"),
        }
    }
}

impl std::error::Error for ScreeningError {}

/// A screening service that fails twice for each request before it answers.
#[derive(Clone)]
pub struct Screening {
    asked: Arc<Mutex<HashMap<String, u32>>>,
}

impl Screening {
    pub fn new() -> Screening {
        Screening { asked: Arc::default() }
    }

    pub fn ask(&self, request: &str, country: &str) -> Result<Risk, ScreeningError> {
        let mut asked = self.asked.lock().expect("nobody panics while it is locked");
        let times = asked.entry(request.to_owned()).or_default();
        *times += 1;
        match (*times, country) {
            (1, _) => Err(ScreeningError::Unavailable),
            (_, "XX") => Err(ScreeningError::UnknownCountry(country.to_owned())),
            (2, _) => Err(ScreeningError::TooManyRequests(Duration::from_secs(90))),
            (_, "DE") => Ok(Risk::Low),
            _ => Ok(Risk::High),
        }
    }
}

/// A service for signatures. Customers sign a day after they were asked.
pub struct Signatures;

impl Signatures {
    pub fn is_there(&self, _customer: &str, since: Duration) -> bool {
        since >= Duration::from_secs(86_400)
    }
}
