//! A random number generator with a seed: equal seeds give equal sequences.

/// The xorshift generator, whose quality suffices for faults.
#[derive(Debug, Clone)]
pub struct Lots(u64);

impl Lots {
    /// Creates a generator. Different seeds give different sequences.
    pub fn new(seed: u64) -> Lots {
        Lots(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// Returns true with a probability of 1 in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Lots;

    #[test]
    fn a_seed_draws_the_same_lots_and_another_draws_others() {
        let draw = |seed| {
            let mut lots = Lots::new(seed);
            (0..20).map(|_| lots.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
