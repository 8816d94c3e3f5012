//! The random numbers of the simulation, the differential tests and the fault scenarios. They do not come from the crate `rand`, because a
//! seed must give the same schedule with every version of every library.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end - 1`; 0 if `end` is 0.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, end: N) -> N {
        let end = end.try_into().ok().expect("an end is not negative");
        N::try_from(self.next() % end.max(1)).ok().expect("it is below an `N`")
    }

    /// Returns true with a probability of one in `times`.
    pub fn one_in<N: TryInto<u64> + TryFrom<u64>>(&mut self, times: N) -> bool {
        let times = times.try_into().ok().expect("a number of times is not negative");
        self.below::<u64>(times) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

#[test]
fn a_seed_draws_the_same_numbers_and_another_draws_others() {
    let draw = |seed| {
        let mut random = Random::new(seed);
        (0..20).map(|_| random.below(1000)).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}
