//! FNV-1a: a hash that is the same in every release and on every machine, for values that are stored and compared.
//!
//! The crate `fnv` has only the width of 64 bits; digests of requests have 128.

/// Returns the hash with 64 bits, enough to notice a change.
pub fn fnv1a_64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the hash with 128 bits, enough to distinguish many values. It does not resist an attacker.
pub fn fnv1a_128(bytes: impl IntoIterator<Item = u8>) -> u128 {
    let mix = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    bytes.into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the specification (draft-eastlake-fnv).
    #[test]
    fn the_hashes_are_those_of_the_specification() {
        assert_eq!(fnv1a_64(*b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(*b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128(*b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(fnv1a_128(*b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
