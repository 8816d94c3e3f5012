//! Bad input gets a clear error, and nothing is lost.
