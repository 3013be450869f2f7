//! Processor features: what the C compiler is told of those that a jam requires.

use std::fs;

use jam_format::{Machine, Parsed};

use crate::common::{TARGET, builder, built};

/// Each feature, and what C compilers define where they may use it.
const DEFINED: &[(&str, &str)] = if cfg!(target_arch = "x86_64") {
    &[
        ("sse3", "__SSE3__"),
        ("ssse3", "__SSSE3__"),
        ("sse4.1", "__SSE4_1__"),
        ("sse4.2", "__SSE4_2__"),
        ("popcnt", "__POPCNT__"),
        ("cmpxchg16b", "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16"),
        ("lzcnt", "__LZCNT__"),
        ("movbe", "__MOVBE__"),
        ("bmi1", "__BMI__"),
        ("bmi2", "__BMI2__"),
        ("f16c", "__F16C__"),
        ("fma", "__FMA__"),
        ("avx", "__AVX__"),
        ("avx2", "__AVX2__"),
        ("aes", "__AES__"),
        ("pclmulqdq", "__PCLMUL__"),
        ("sha", "__SHA__"),
        ("avx512f", "__AVX512F__"),
        ("avx512bw", "__AVX512BW__"),
        ("avx512cd", "__AVX512CD__"),
        ("avx512dq", "__AVX512DQ__"),
        ("avx512vl", "__AVX512VL__"),
        ("avx512vnni", "__AVX512VNNI__"),
        ("avx512bf16", "__AVX512BF16__"),
        ("gfni", "__GFNI__"),
        ("vaes", "__VAES__"),
        ("vpclmulqdq", "__VPCLMULQDQ__"),
    ]
} else {
    &[
        ("crc", "__ARM_FEATURE_CRC32"),
        ("lse", "__ARM_FEATURE_ATOMICS"),
        ("rdm", "__ARM_FEATURE_QRDMX"),
        ("fp16", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC"),
        ("dotprod", "__ARM_FEATURE_DOTPROD"),
        ("aes", "__ARM_FEATURE_AES"),
        ("sha2", "__ARM_FEATURE_SHA2"),
        ("sha3", "__ARM_FEATURE_SHA3"),
        // Not every compiler defines something for the three about atomics.
        ("rcpc", "__aarch64__"),
        ("rcpc2", "__aarch64__"),
        ("bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC"),
        ("i8mm", "__ARM_FEATURE_MATMUL_INT8"),
        ("sve", "__ARM_FEATURE_SVE"),
        ("sve2", "__ARM_FEATURE_SVE2"),
        ("lse2", "__aarch64__"),
    ]
};

/// A C compiler may use more than every processor of the machine has, because it was configured so, or is
/// a script that says so. A receiver compares what the blob says.
#[test]
fn code_in_c_does_not_use_the_features_of_the_compilers_own_choice() {
    let (choice, defined) = match cfg!(target_arch = "x86_64") {
        true => ("x86-64-v3", "__AVX2__"),
        false => ("armv8.1-a", "__ARM_FEATURE_ATOMICS"),
    };
    let (folder, builder) = builder(TARGET);
    let [jams, cc] = ["jams", "cc"].map(|name| folder.path().join(name));
    fs::create_dir_all(jams.join("seven")).expect("a folder");
    fs::write(&cc, format!("exec cc -march={choice} \"$@\"\n")).expect("a script");
    let head = format!("#include \"jam.h\"\n#ifdef {defined}\n#error {choice}\n#endif\n");
    let jam = "JAM_SIGNATURE(void, void, void);\nint64_t JAM_ENTRY(jam_call *call) { return 7; }\n";
    let ried = "RIED_EXPORT(int64_t, seven, (void));\nint64_t seven(void) { return 7; }\n";
    fs::write(jams.join("six.c"), format!("{head}{jam}")).expect("a source");
    fs::write(jams.join("seven/seven.c"), format!("{head}{ried}")).expect("a source");
    built(builder.cc(format!("sh {}", cc.display())).build(jams));
}

/// A receiver does not compare what a ried requires.
#[test]
fn a_ried_in_c_uses_no_features() {
    let (name, defined) = DEFINED[DEFINED.len() / 2];
    let (folder, builder) = builder(TARGET);
    let ried = folder.path().join("jams/seven");
    fs::create_dir_all(&ried).expect("a folder");
    let text = format!(
        "#include \"jam.h\"\n#ifdef {defined}\n#error {name} is used\n#endif\n\
         RIED_EXPORT(int64_t, seven, (int64_t));\nint64_t seven(int64_t more) {{ return 7 + more; }}\n"
    );
    fs::write(ried.join("seven.c"), text).expect("a source");
    let builder = builder.features(&[name]).expect("a known feature");
    assert_eq!(built(builder.build(folder.path().join("jams"))).rieds.len(), 1);
}

#[test]
fn a_jam_in_c_may_use_each_feature_that_it_requires() {
    let machine = Machine::CURRENT.expect("a machine that has jams");
    assert!(DEFINED.iter().map(|(name, _)| name).eq(machine.features()), "a feature is missing");
    for (name, defined) in DEFINED {
        let (folder, builder) = builder(TARGET);
        let source = folder.path().join("sum.c");
        let text = format!(
            "#include \"jam.h\"\n#ifndef {defined}\n#error {name} is not used\n#endif\n\
             JAM_SIGNATURE(void, int64_t, void);\n\
             int64_t JAM_ENTRY(jam_call *call) {{ return *(const int64_t *)call->args; }}\n"
        );
        fs::write(&source, text).expect("a source");
        let builder = builder.features(&[name]).expect("a known feature");
        let jam = built(builder.build_jam(&source));
        let blob = Parsed::parse(&jam.blob).expect("a blob");
        assert!(blob.features().names(machine).eq([*name]));
    }
}
