//! The compile errors of the macros. Each file in `tests/ui` contains one mistake and is named after it.

#[test]
fn mistakes_are_told_in_our_words() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
