//! [`CpuFeatures`]: what a processor can do beyond what the program was compiled for.
//!
//! A program may find out at run time that its processor has a feature, and keep the proof in a
//! value without bytes (`pulp`'s and `fearless_simd`'s tokens are such). A delegated closure can
//! capture that value unseen, and the trustee then makes one without looking. So hosts whose
//! processors differ must know.

use std::fmt;

/// The features of a processor, of those that Rust programs can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuFeatures(u128);

/// Names the features of this architecture, in an order that every process of one build knows, and
/// asks for each.
macro_rules! features {
    ($detect:ident: $($name:tt)*) => {
        const NAMES: &[&str] = &[$($name),*];
        const _: () = assert!(NAMES.len() <= u128::BITS as usize);

        fn detect() -> impl Iterator<Item = bool> {
            [$(std::arch::$detect!($name)),*].into_iter()
        }
    };
}

#[cfg(target_arch = "x86_64")]
features! { is_x86_feature_detected:
    "adx" "aes" "avx" "avx2" "avx512bf16" "avx512bitalg" "avx512bw" "avx512cd" "avx512dq" "avx512f"
    "avx512fp16" "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vl" "avx512vnni"
    "avx512vp2intersect" "avx512vpopcntdq" "avxifma" "avxneconvert" "avxvnni" "avxvnniint16"
    "avxvnniint8" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr" "gfni" "kl" "lzcnt" "movbe"
    "pclmulqdq" "popcnt" "rdrand" "rdseed" "sha" "sha512" "sm3" "sm4" "sse3" "sse4.1" "sse4.2"
    "sse4a" "ssse3" "tbm" "vaes" "vpclmulqdq" "widekl" "xsave" "xsavec" "xsaveopt" "xsaves"
}

#[cfg(target_arch = "aarch64")]
features! { is_aarch64_feature_detected:
    "aes" "asimd" "bf16" "bti" "crc" "dit" "dotprod" "dpb" "dpb2" "f32mm" "f64mm" "fcma" "fhm"
    "flagm" "fp" "fp16" "frintts" "i8mm" "jsconv" "lse" "mte" "paca" "pacg" "pmull" "rand" "rcpc"
    "rcpc2" "rdm" "sb" "sha2" "sha3" "sm4" "ssbs" "sve" "sve2" "sve2-aes" "sve2-bitperm"
    "sve2-sha3" "sve2-sm4"
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES: &[&str] = &[];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> impl Iterator<Item = bool> {
    std::iter::empty()
}

impl CpuFeatures {
    /// No features: what every processor has.
    pub const NONE: CpuFeatures = CpuFeatures(0);

    /// The features of the processor that this process runs on.
    ///
    /// ```
    /// use gossamer_primitive::CpuFeatures;
    /// assert_eq!(CpuFeatures::detected(), CpuFeatures::detected());
    /// ```
    pub fn detected() -> Self {
        Self(detect().zip(0..).fold(0, |bits, (has, at)| bits | u128::from(has) << at))
    }

    /// The features with these bits, as [`bits`](Self::bits) of a process of the same build has
    /// them.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// One bit for each feature.
    pub fn bits(self) -> u128 {
        self.0
    }

    /// Those of these features that `others` lacks.
    #[must_use]
    pub fn without(self, others: CpuFeatures) -> CpuFeatures {
        CpuFeatures(self.0 & !others.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The names, separated by commas; unknown features are numbers.
impl fmt::Display for CpuFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for at in (0..u128::BITS).filter(|at| self.0 >> at & 1 == 1) {
            match NAMES.get(at as usize) {
                Some(name) => write!(f, "{comma}{name}")?,
                None => write!(f, "{comma}#{at}")?,
            }
            comma = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_of_this_processor_are_those_that_it_says_it_has() {
        let detected = CpuFeatures::detected();
        let names = detected.to_string();
        let names: Vec<&str> = names.split(", ").collect();
        #[cfg(target_arch = "x86_64")]
        for (name, has) in [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("popcnt", std::arch::is_x86_feature_detected!("popcnt")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ] {
            assert_eq!(names.contains(&name), has, "{name}");
        }
        #[cfg(target_arch = "aarch64")]
        assert_eq!(names.contains(&"sve"), std::arch::is_aarch64_feature_detected!("sve"));
        assert_eq!(CpuFeatures::from_bits(detected.bits()), detected);
    }

    #[test]
    fn differences_are_named() {
        let (some, more) = (CpuFeatures::from_bits(0b0101), CpuFeatures::from_bits(1 << 127 | 0b1));
        assert_eq!(some.without(more).bits(), 0b0100);
        assert_eq!(more.without(some).to_string(), "#127");
        assert!(some.without(some).is_empty() && CpuFeatures::NONE.is_empty());
        #[cfg(target_arch = "x86_64")]
        assert_eq!(some.to_string(), "adx, avx");
    }
}
