//! What the host has: where the agent works, and what of the home its tools need.
