//! Verdict and progress → decision.
