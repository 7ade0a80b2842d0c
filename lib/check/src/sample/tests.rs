use super::*;

/// Sizes of shards of so many rows of 100 tokens, by names in this order.
fn shards(rows: &[u64]) -> BTreeMap<String, Amount> {
    let tokens = |&rows| Amount {
        rows,
        tokens: 100 * rows,
    };
    named(rows.iter().map(tokens))
}

fn named(shards: impl Iterator<Item = Amount>) -> BTreeMap<String, Amount> {
    let named = (0..)
        .zip(shards)
        .map(|(at, shard)| (format!("{at:03}"), shard));
    named.collect()
}

#[test]
fn each_shard_has_its_share_of_the_sample_and_at_least_eight_rows() {
    for (sample, rows, expected) in [
        (Some(200), &[1000, 1000][..], &[100, 100][..]),
        (Some(60), &[24, 25, 26, 27], &[14, 14, 16, 16]),
        (Some(200), &[5, 1000], &[5, 200]),
        (Some(10), &[1000, 3], &[9, 3]),
        (Some(0), &[1000, 3], &[0, 0]),
        (Some(u64::MAX), &[1000, 3], &[1000, 3]),
        (None, &[1000; 50], &[8; 50]),
        (None, &[20_000], &[66]),
        (None, &[200], &[20]),
        (None, &[10_000, 20, 20], &[65, 8, 8]),
        (None, &[], &[]),
    ] {
        let shares = shares(sample, rows.iter().sum(), &shards(rows));
        let quotas: Vec<u64> = shares.values().map(|share| share.rows).collect();
        assert_eq!(quotas, expected, "{sample:?} of {rows:?}");
    }
}

#[test]
fn the_budget_is_a_tenth_of_all_tokens_or_that_of_66_proteins() {
    for (rows, proteins, expected) in [
        (&[200][..], 200, &[2000][..]),
        (&[20_000], 20_000, &[6600]),
        (&[15_000, 5_000], 20_000, &[4950, 1650]),
        (&[20_000], 10_000, &[13_200]),
    ] {
        let shares = shares(None, proteins, &shards(rows));
        let tokens: Vec<u64> = shares.values().map(|share| share.tokens).collect();
        assert_eq!(tokens, expected, "{rows:?}");
    }
}

/// Rows of these tokens.
fn candidates(tokens: impl IntoIterator<Item = u64>) -> Vec<Candidate> {
    let row = |(ordinal, tokens)| Candidate {
        key: (ordinal, 0),
        tokens,
        truncated: false,
        windowed: false,
        aliased: false,
    };
    (0..).zip(tokens).map(row).collect()
}

/// Chooses so many rows, whatever their tokens.
fn choose_rows(rows: &[Candidate], quota: u64, seed: u64) -> HashSet<(u64, u32)> {
    let share = Amount {
        rows: quota,
        tokens: u64::MAX,
    };
    choose(rows, share, seed).0
}

#[test]
fn a_sample_has_both_ends_and_every_kind() {
    let mut rows = candidates((0..100).map(|ordinal| 10 + (ordinal * 37) % 100));
    rows[41].truncated = true;
    rows[42].windowed = true;
    rows[43].aliased = true;
    let chosen = choose_rows(&rows, 8, 0);
    assert_eq!(chosen.len(), 8);
    for place in [41, 42, 43] {
        assert!(chosen.contains(&(place, 0)), "{place}");
    }
    for tokens in [10, 109] {
        let end = rows.iter().find(|row| row.tokens == tokens);
        assert!(chosen.contains(&end.expect("a row").key), "{tokens}");
    }
    assert_eq!(choose_rows(&rows, 1000, 0).len(), 100);
    assert_ne!(choose_rows(&rows, 8, 1), chosen);
    assert!(choose_rows(&[], 8, 0).is_empty());
    assert!(choose_rows(&rows, 0, 0).is_empty());
}

/// Tokens of proteins as they are: many short ones, few very long ones.
fn lengths(count: u64, seed: u64, most: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |at| {
        let [one, two, three] = [1, 2, 3].map(|nth| {
            let number = scramble(scramble(seed, nth), at);
            (number >> 11) as f64 / (1u64 << 53) as f64
        });
        let normal = (one + two + three - 1.5) * 2.0;
        ((5.7 + 0.9 * normal).exp() as u64).clamp(3, most)
    })
}

proptest::proptest! {
    #[test]
    fn a_sample_costs_its_budget_or_its_least_rows(
        sizes in proptest::collection::vec((1u64..400, 0u64..6), 1..12),
        seed: u64,
        most in proptest::sample::select(vec![1024u64, 9000, 100_000]),
        kinds in 0u64..20,
    ) {
        let shards: Vec<Vec<Candidate>> = sizes.iter().map(|&(rows, growth)| {
            let mut rows = candidates(lengths(rows * (1 << growth), seed ^ rows, most));
            for row in &mut rows {
                row.truncated = row.tokens == 1024;
                row.windowed = row.tokens > 1024;
                row.aliased = row.key.0 % 20 < kinds;
            }
            rows
        }).collect();
        let of = |rows: &Vec<Candidate>| Amount {
            rows: rows.len() as u64,
            tokens: rows.iter().map(|row| row.tokens).sum(),
        };
        let amounts = named(shards.iter().map(of));
        let all = amounts.values().map(|shard| shard.rows).sum::<u64>();
        let tokens = amounts.values().map(|shard| shard.tokens).sum::<u64>();
        let shares = shares(None, all, &amounts);
        let budgets = shares.values().map(|share| share.tokens).sum::<u64>();
        proptest::prop_assert!(budgets <= (tokens / 10).min(66 * tokens / all));
        for (rows, share) in shards.iter().zip(shares.values()) {
            let chosen = choose(rows, *share, seed);
            let cost: u64 = rows.iter().filter(|row| chosen.0.contains(&row.key)).map(|row| row.tokens).sum();
            let mean = of(rows).tokens as f64 / rows.len() as f64;
            let floor = mean * rows.len().min(LEAST as usize) as f64;
            let count = chosen.0.len();
            proptest::prop_assert!(count >= rows.len().min(LEAST as usize));
            proptest::prop_assert!(cost as f64 <= floor.max(share.tokens as f64) + 1.0 || count as u64 == LEAST.min(rows.len() as u64));
            // Eight rows of as many lengths, each of which fits.
            proptest::prop_assert!(cost as f64 <= 3.0 * floor.max(share.tokens as f64) + 1.0);
            // Neither the order of the rows nor other shards count.
            let mut turned = rows.clone();
            turned.reverse();
            proptest::prop_assert_eq!(choose(&turned, *share, seed).0, chosen.0);
        }
    }
}

/// The promise of the report, for faults in the longest and the shortest rows, in one row of each class, and in any.
#[test]
fn a_fault_in_a_tenth_of_the_rows_is_seen_as_often_as_the_report_says() {
    for (count, most) in [(100, 1024), (100, 40_000), (1000, 1024), (3000, 40_000)] {
        let mut tokens: Vec<u64> = lengths(count, count, most).collect();
        tokens.sort_unstable();
        let rows = candidates(tokens);
        let tokens = rows.iter().map(|row| row.tokens).sum();
        let amount = Amount {
            rows: count,
            tokens,
        };
        let share = shares(None, count, &named([amount].into_iter()))["000"];
        let faults: [&dyn Fn(u64) -> bool; 4] = [
            &|place| place < count / 10,
            &|place| place >= count - count / 10,
            &|place| place % 10 == 4,
            &|place| scramble(1, place).is_multiple_of(10),
        ];
        for (nth, is_faulty) in faults.iter().enumerate() {
            let (mut seen, mut promised, runs) = (0, 0.0, 1000);
            for seed in 0..runs {
                let chosen = choose(&rows, share, seed);
                seen += u64::from(chosen.0.iter().any(|(place, _)| is_faulty(*place)));
                promised += chosen.1.chance();
            }
            let (seen, promised) = (seen as f64 / runs as f64, promised / runs as f64);
            let chance = 3.0 * (promised * (1.0 - promised) / runs as f64).sqrt();
            assert!(
                seen > promised - chance,
                "{count} rows, fault {nth}: {seen} {promised}"
            );
        }
    }
}
