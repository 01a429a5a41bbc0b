//! Kubernetes quantities of CPU, memory and storage.

use crate::service::Invalid;

/// Units with factor and divisor.
const UNITS: [(&str, u128, u128); 11] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("m", 1, 1000),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
];

/// Number of bytes of a quantity. `field` is its path in the spec.
pub fn bytes(quantity: &str, field: &str) -> Result<u64, Invalid> {
    let whole = thousandths(quantity).and_then(|number| u64::try_from(number / 1000).ok());
    whole.ok_or_else(|| {
        Invalid::new(field, format!("{quantity:?} is not a size: write e.g. \"1Gi\" or \"512Mi\""))
    })
}

/// The larger of two quantities, or the first if they cannot be compared.
pub fn larger<'a>(one: &'a str, other: &'a str) -> &'a str {
    if thousandths(other) > thousandths(one) { other } else { one }
}

/// The smaller of two quantities, or the first if they cannot be compared.
pub fn smaller<'a>(one: &'a str, other: &'a str) -> &'a str {
    match (thousandths(one), thousandths(other)) {
        (Some(number), Some(another)) if another < number => other,
        _ => one,
    }
}

/// Whether the first quantity is smaller; not if they cannot be compared.
pub fn is_smaller(one: &str, other: &str) -> bool {
    thousandths(one).zip(thousandths(other)).is_some_and(|(one, other)| one < other)
}

/// Whether two quantities are the same amount in any notation.
pub fn is_same(one: &str, other: &str) -> bool {
    thousandths(one).is_some_and(|number| thousandths(other) == Some(number))
}

/// A quantity in thousandths, the finest resolution of Kubernetes.
fn thousandths(quantity: &str) -> Option<u128> {
    let unit = UNITS.iter().find_map(|(suffix, factor, divisor)| {
        quantity.strip_suffix(suffix).map(|digits| (digits, *factor, *divisor))
    });
    let (digits, factor, divisor) = unit.unwrap_or((quantity, 1, 1));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let shift = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = u128::from(format!("{whole}{fraction}").parse::<u64>().ok()?);
    Some(digits.checked_mul(factor)?.checked_mul(1000)? / shift.checked_mul(divisor)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_sizes_are_parsed_and_others_are_rejected_with_a_remedy() {
        assert_eq!(bytes("1Gi", "x"), Ok(1 << 30));
        assert_eq!(bytes("512M", "x"), Ok(512_000_000));
        assert_eq!(bytes("7", "x"), Ok(7));
        assert_eq!(bytes("1.5Gi", "x"), Ok(3 << 29));
        assert_eq!(bytes("2000m", "x"), Ok(2));
        assert!(bytes("much", "spec.a").is_err_and(|invalid| invalid.to_string().starts_with("spec.a: ")));
        for wrong in ["99999999999Pi", "-1Gi", "1.2.3", "Gi", ""] {
            assert!(bytes(wrong, "x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantities_of_different_units_are_compared() {
        assert_eq!((larger("1Gi", "1500M"), smaller("1Gi", "1500M")), ("1500M", "1Gi"));
        assert_eq!((larger("0.5", "50m"), smaller("0.5", "50m")), ("0.5", "50m"));
        assert_eq!((larger("1Gi", "much"), smaller("1Gi", "much")), ("1Gi", "1Gi"));
    }

    #[test]
    fn equal_amounts_in_different_units_are_the_same() {
        for (one, other) in [("1", "1000m"), ("1Gi", "1024Mi"), ("1.5", "1500m"), ("2k", "2000")] {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [("1", "1001m"), ("1G", "1Gi"), ("much", "much"), ("much", "1"), ("1", "much")] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}
