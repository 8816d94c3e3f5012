//! What the macros say of a mistake, and what they accept. The file's name is the mistake.

#[test]
fn mistakes_are_told_in_our_words() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
