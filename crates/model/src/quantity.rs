//! Amounts of memory and storage as Kubernetes writes them.

use crate::service::Invalid;

/// The number of bytes that a quantity stands for. `field` is where it was written.
pub fn bytes(quantity: &str, field: &str) -> Result<u64, Invalid> {
    const UNITS: [(&str, u64); 10] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
    ];
    let unit = UNITS.iter().find(|(suffix, _)| quantity.ends_with(suffix));
    let (digits, factor) =
        unit.map_or((quantity, 1), |(suffix, factor)| (quantity.trim_end_matches(suffix), *factor));
    let whole = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    whole.ok_or_else(|| {
        Invalid::new(field, format!("{quantity:?} is not a size: write e.g. \"1Gi\" or \"512Mi\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_others_refused_with_a_remedy() {
        assert_eq!(bytes("1Gi", "x"), Ok(1 << 30));
        assert_eq!(bytes("512M", "x"), Ok(512_000_000));
        assert_eq!(bytes("7", "x"), Ok(7));
        assert!(bytes("much", "spec.a").is_err_and(|invalid| invalid.to_string().starts_with("spec.a: ")));
        assert!(bytes("99999999999Pi", "x").is_err());
    }
}
