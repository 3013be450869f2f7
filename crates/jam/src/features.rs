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

/// The names that are asked for on one machine, and the function that asks for one of them. A name that is
/// not in the list is a feature that the host lacks: jams that require it are refused.
macro_rules! detected {
    ($arch:literal, $list:ident, $detect:ident: $($name:tt)*) => {
        #[cfg(test)]
        const $list: &[&str] = &[$($name),*];

        #[cfg(target_arch = $arch)]
        fn has(name: &str) -> bool {
            match name {
                $($name => std::arch::$detect!($name),)*
                _ => false,
            }
        }
    };
}

detected! { "x86_64", X86_64, is_x86_feature_detected:
    "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b" "lzcnt" "movbe" "bmi1" "bmi2" "f16c"
    "fma" "avx" "avx2" "aes" "pclmulqdq" "sha" "avx512f" "avx512bw" "avx512cd" "avx512dq"
    "avx512vl" "avx512vnni" "avx512bf16" "gfni" "vaes" "vpclmulqdq"
}

detected! { "aarch64", AARCH64, is_aarch64_feature_detected:
    "crc" "lse" "rdm" "fp16" "dotprod" "aes" "sha2" "sha3" "rcpc" "rcpc2" "bf16" "i8mm" "sve"
    "sve2" "lse2"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_a_jam_can_require_is_asked_for() {
        assert_eq!(X86_64, Machine::X86_64.features());
        assert_eq!(AARCH64, Machine::Aarch64.features());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_processor_is_asked() {
        assert_eq!(has("sse3"), std::arch::is_x86_feature_detected!("sse3"));
        let sse3 = Features::from_names(Machine::X86_64, ["sse3"]).unwrap();
        assert_eq!(sse3.missing_from(of_host()).is_empty(), has("sse3"));
        assert!(!has("unheard-of"));
    }
}
