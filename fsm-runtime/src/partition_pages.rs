//! Merges the pages of several partitions into one, in the order of the list.

use std::cmp::Ordering;

use fsm_store::pages::{After, PageFilter};

/// A page of one partition, or of all: the items with their positions.
pub(crate) struct PartitionPage<T> {
    pub(crate) items: Vec<(After, T)>,
    /// The position after which the next page begins, if there are more items.
    pub(crate) next: Option<After>,
    /// The page ends because the limit of instances to read was reached, not because it is full.
    pub(crate) was_cut: bool,
}

/// Merges the same page of several partitions into one of at most `filter.limit` items.
pub(crate) fn merged<T>(pages: Vec<PartitionPage<T>>, filter: &PageFilter) -> PartitionPage<T> {
    let order = |one: &After, other: &After| if filter.newest_first { other.cmp(one) } else { one.cmp(other) };
    // A partition with further items was read only up to the end of its page.
    let end = pages.iter().filter_map(|page| Some((page.next.clone()?, page.was_cut))).min_by(|(one, _), (other, _)| order(one, other));
    let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    items.retain(|(position, _)| end.as_ref().is_none_or(|(end, _)| order(position, end) != Ordering::Greater));
    items.sort_by(|(one, _), (other, _)| order(one, other));
    let is_full = items.len() > filter.limit as usize;
    items.truncate(filter.limit as usize);
    if is_full {
        return PartitionPage { next: items.last().map(|(position, _)| position.clone()), items, was_cut: false };
    }
    let was_cut = end.as_ref().is_some_and(|(_, was_cut)| *was_cut);
    PartitionPage { items, next: end.map(|(end, _)| end), was_cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str], next: Option<&str>, was_cut: bool) -> PartitionPage<()> {
        let after = |key: &str| After::Key(key.to_owned());
        PartitionPage { items: keys.iter().map(|key| (after(key), ())).collect(), next: next.map(after), was_cut }
    }

    fn filter(limit: u32, newest_first: bool) -> PageFilter {
        PageFilter { limit, newest_first, ..PageFilter::default() }
    }

    fn told(page: PartitionPage<()>) -> (Vec<String>, Option<String>, bool) {
        let key = |after| match after {
            After::Key(key) => key,
            After::Instance(id) => id.to_string(),
        };
        (page.items.into_iter().map(|(after, ())| key(after)).collect(), page.next.map(key), page.was_cut)
    }

    #[test]
    fn a_merged_page_is_full_or_ends_where_a_partition_was_not_read_further() {
        let three = || vec![page(&["a", "d"], Some("d"), false), page(&["b"], None, false), page(&["c", "e"], Some("e"), false)];
        assert_eq!(told(merged(three(), &filter(2, false))), (vec!["a".into(), "b".into()], Some("b".into()), false));
        let all = ["a", "b", "c", "d"].map(String::from).to_vec();
        assert_eq!(told(merged(three(), &filter(4, false))), (all.clone(), Some("d".into()), false));
        assert_eq!(told(merged(three(), &filter(9, false))), (all, Some("d".into()), false));
        assert_eq!(
            told(merged(vec![page(&["b"], None, false), page(&["a"], None, false)], &filter(2, true))),
            (vec!["b".into(), "a".into()], None, false)
        );
    }

    #[test]
    fn a_page_that_was_cut_in_one_partition_ends_there() {
        let pages = || vec![page(&["z", "w"], Some("f"), true), page(&["x", "e"], Some("c"), true)];
        let found = ["z", "x", "w"].map(String::from).to_vec();
        assert_eq!(told(merged(pages(), &filter(9, true))), (found.clone(), Some("f".into()), true));
        assert_eq!(told(merged(pages(), &filter(2, true))), (found[..2].to_vec(), Some("x".into()), false));
        assert_eq!(told(merged(vec![page(&["z"], Some("f"), true)], &filter(9, true))), (vec!["z".into()], Some("f".into()), true));
    }
}
