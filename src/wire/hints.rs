//! The provider's own word on when to come back.
