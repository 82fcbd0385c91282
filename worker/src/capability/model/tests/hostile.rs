//! Providers that mean no good.
