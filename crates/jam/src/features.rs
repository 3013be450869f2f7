//! What the processor of this host has, of the features that a jam can require.

use std::sync::OnceLock;

use jam_format::{Features, Machine};

/// The features of this host, asked for once.
pub(crate) fn of_host() -> Features {
    static HOST: OnceLock<Features> = OnceLock::new();
    *HOST.get_or_init(|| {
        let names = Machine::CURRENT.map_or(&[][..], Machine::features);
        let bits = names.iter().enumerate().filter(|(_, name)| has(name));
        Features::from_bits(bits.fold(0, |bits, (bit, _)| bits | 1 << bit))
    })
}

/// A name that is not in the list is a feature that the host lacks: jams that require it are refused.
macro_rules! detected {
    ($detect:ident, $wanted:ident: $($name:tt)*) => {
        match $wanted {
            $($name => std::arch::$detect!($name),)*
            _ => false,
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn has(name: &str) -> bool {
    detected! { is_x86_feature_detected, name:
        "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b" "lzcnt" "movbe" "bmi1" "bmi2" "f16c"
        "fma" "avx" "avx2" "aes" "pclmulqdq" "sha" "avx512f" "avx512bw" "avx512cd" "avx512dq"
        "avx512vl" "avx512vnni" "avx512bf16" "gfni" "vaes" "vpclmulqdq"
    }
}

#[cfg(target_arch = "aarch64")]
fn has(name: &str) -> bool {
    detected! { is_aarch64_feature_detected, name:
        "crc" "lse" "rdm" "fp16" "dotprod" "aes" "sha2" "sha3" "rcpc" "rcpc2" "bf16" "i8mm" "sve"
        "sve2"
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_a_jam_can_require_is_asked_for() {
        let source = include_str!("features.rs");
        for name in Machine::X86_64.features() {
            assert!(source.contains(&format!("\"{name}\"")), "{name} is not asked for");
        }
        assert_eq!(has("sse3"), std::arch::is_x86_feature_detected!("sse3"));
        let sse3 = Features::from_names(Machine::X86_64, ["sse3"]).unwrap();
        assert_eq!(sse3.missing_from(of_host()).is_empty(), has("sse3"));
        assert!(!has("unheard-of"));
    }
}
