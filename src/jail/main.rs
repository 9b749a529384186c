//! The `kvro-jail` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvro_jail::cli::main()
}
