//! What models cost: the table of prices, and the arithmetic from usage to exact money.
//!
//! Nothing here knows a ceiling. A price that is not in the table is `None`, never zero.

mod rates;
mod table;

pub use rates::{Price, UnitCeiling};
pub use table::{PriceError, PriceRow, PriceTable, WhenRow};
