//! The rules of a machine that depend on types. They are emitted as checks for the compiler.

use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::aliases;
use super::declared::Declared;
use super::graph::{Graph, MachineVerb};
use crate::names;
use crate::retry::Retry;

pub fn expand(declared: &Declared, graph: &Graph) -> TokenStream {
    let rules = [
        a_name_is_one_verb,
        a_verb_keeps_the_machines_record,
        a_timer_leads_to_a_verb_of_timeout,
        timeout_is_only_behind_a_timer,
        caught_is_only_for_a_catch_verb,
        no_instance_starts_with_its_children,
        the_end_of_all_children_interrupts_nothing,
        a_verb_with_a_checked_context_is_in_one_machine,
        an_on_block_is_of_one_event,
        an_event_type_is_of_one_verb,
        the_default_catch_fits_every_verb,
    ];
    rules.iter().map(|rule| rule(declared, graph)).collect()
}

/// Emits a check that fails to compile with `message` and `help` if `condition`, a constant, is false. The message is that of a missing
/// implementation, because such an error begins with the message. The error of a constant that panics begins with
/// `evaluation panicked`.
fn check(span: Span, condition: &TokenStream, message: &str, help: &str) -> TokenStream {
    // Braces have a meaning in these texts.
    let [message, help] = [message, help].map(|text| text.replace('{', "{{").replace('}', "}}"));
    quote_spanned! {span=>
        const _: () = {
            #[diagnostic::on_unimplemented(message = #message, label = "not accepted by the machine", note = #help)]
            trait Rule {
                const KEPT: () = ();
            }
            #[diagnostic::do_not_recommend]
            impl Rule for ::fsm::__private::Condition<true> {}
            <::fsm::__private::Condition<{ #condition }> as Rule>::KEPT
        };
    }
}

fn a_name_is_one_verb(_: &Declared, graph: &Graph) -> TokenStream {
    let paths = graph.verbs.iter().flat_map(|state| state.other_paths.iter().map(move |path| (path, &state.verb)));
    paths.map(|(path, verb)| quote_spanned!(path.span()=> const _: () = ::fsm::__private::is_verb::<#path, #verb>();)).collect()
}

fn a_verb_keeps_the_machines_record(declared: &Declared, graph: &Graph) -> TokenStream {
    let record = aliases::record(declared);
    let checks = graph.verbs.iter().map(|MachineVerb { verb, .. }| match &record {
        Some(record) => quote_spanned!(verb.span()=> const _: () = ::fsm::__private::keeps::<#verb, #record>();),
        None => quote_spanned!(verb.span()=> const _: () = ::fsm::__private::keeps_nothing::<#verb>();),
    });
    checks.collect()
}

fn a_timer_leads_to_a_verb_of_timeout(_: &Declared, graph: &Graph) -> TokenStream {
    let timed = graph.verbs.iter().filter(|state| state.is_timed);
    timed
        .map(|state| {
            let event_type = state.event_type();
            quote_spanned!(state.verb.span()=> const _: () = ::fsm::__private::is_timeout::<#event_type>();)
        })
        .collect()
}

fn timeout_is_only_behind_a_timer(declared: &Declared, graph: &Graph) -> TokenStream {
    let starts = declared.starts.iter().map(|start| (None, &start.state));
    let edges = declared.edges.iter().filter(|edge| edge.after.is_none()).map(|edge| (Some(names::state(&edge.from)), &edge.to));
    let stays = declared.stays.iter().map(|stay| (Some(names::state(&stay.state)), &stay.verb));
    let mut seen = BTreeSet::new();
    let run = starts.chain(edges).chain(stays).filter(|(_, to)| seen.insert(names::state(to)));
    let checks = run.filter_map(|(from, to)| {
        let verb = graph.verb(to)?;
        let (event, name) = (verb.event(), &verb.name);
        let message = format!("the verb `{name}` takes `Timeout`, which only a timer delivers");
        let help = match from {
            Some(_) if !verb.enters => "no event leads to it; write an event type of its own".to_owned(),
            Some(from) => format!("write `{from} after \"30m\" -> {name};`"),
            None => "no instance can start with it; start with a verb that takes another event".to_owned(),
        };
        Some(check(to.span(), &quote!(!::fsm::__private::same(#event, "Timeout")), &message, &help))
    });
    checks.collect()
}

/// The name of the event distinguishes the verb of an internal transition from a catch verb.
fn caught_is_only_for_a_catch_verb(_: &Declared, graph: &Graph) -> TokenStream {
    let staying = graph.verbs.iter().filter(|verb| !verb.enters);
    let checks = staying.map(|verb| {
        let (event, name) = (verb.event(), &verb.name);
        let message = format!("the verb `{name}` takes `Caught`, which only a catch delivers");
        check(
            verb.verb.span(),
            &quote!(!::fsm::__private::is_any_caught(#event)),
            &message,
            &format!("write `#[retry(…, catch = {name})]`"),
        )
    });
    checks.collect()
}

fn no_instance_starts_with_its_children(declared: &Declared, graph: &Graph) -> TokenStream {
    let checks = declared.starts.iter().filter_map(|start| {
        let verb = graph.verb(&start.state)?;
        let (event, name) = (verb.event(), &verb.name);
        let message = format!("no instance starts with `{name}`: its event tells an instance of the children that it has started");
        let help = format!("start with a verb that takes another event, and write `that_state -> {name};`");
        Some(check(start.state.span(), &quote!(!::fsm::__private::is_of_children(#event)), &message, &help))
    });
    checks.collect()
}

fn the_end_of_all_children_interrupts_nothing(declared: &Declared, graph: &Graph) -> TokenStream {
    let checks = declared.edges.iter().filter(|edge| edge.interrupts).filter_map(|edge| {
        let verb = graph.verb(&edge.to)?;
        let (event, name) = (verb.event(), &verb.name);
        let message = format!("the verb `{name}` takes `ChildrenEnded`, which waits until the instance is at rest and interrupts nothing");
        let help = format!("write `{} -> {name};`", names::state(&edge.from));
        Some(check(edge.to.span(), &quote!(!::fsm::__private::same(#event, "ChildrenEnded")), &message, &help))
    });
    checks.collect()
}

/// The compiler finds no single machine for such a verb if two machines have it.
fn a_verb_with_a_checked_context_is_in_one_machine(_: &Declared, graph: &Graph) -> TokenStream {
    let checks = graph.verbs.iter().map(|MachineVerb { verb, .. }| {
        quote_spanned! {verb.span()=>
            const _: () = ::fsm::__private::is_in_one_machine::<<#verb as ::fsm::__private::Verb>::Checked, _>();
        }
    });
    checks.collect()
}

/// All verbs of an `on` block take its event. The first verb that takes an event of another name is reported, and every verb that takes another
/// type of the same name.
fn an_on_block_is_of_one_event(declared: &Declared, graph: &Graph) -> TokenStream {
    let blocks = declared.groups.iter().enumerate().map(|(i, ty)| {
        let (name, group) = (names::event(ty), aliases::group(declared, i));
        let states = || graph.verbs.iter().filter(move |state| state.group == Some(i) && !state.is_timed);
        let first = states().next().map_or_else(|| ty.span(), |state| state.verb.span());
        let named = states().enumerate().map(|(n, state)| {
            let (event, verb) = (state.event(), &state.name);
            let before = states().take(n).map(MachineVerb::event);
            let message = format!("the verb `{verb}` takes another event than `{name}`, the one of its `on` block");
            let help =
                "write `on` with the event type that all its verbs take, by the name that they use, and move the others out of the block";
            // The type is mentioned: if it does not exist, the compiler reports that alone.
            let fits = quote! {
                let _ = ::core::marker::PhantomData::<#group>;
                #(!::fsm::__private::same(#before, #name) ||)* ::fsm::__private::same(#event, #name)
            };
            check(state.verb.span(), &fits, &message, help)
        });
        let typed = states().map(|state| {
            let (event_type, event) = (state.event_type(), state.event());
            quote_spanned! {state.verb.span()=>
                const _: () = ::fsm::__private::is_event::<
                    <::fsm::__private::Condition<{ ::fsm::__private::same(#event, #name) }>
                        as ::fsm::__private::Pick<#event_type, #group>>::Picked,
                    #group,
                >();
            }
        });
        let named: TokenStream = named.collect();
        let typed: TokenStream = typed.collect();
        // A block without a verb mentions its type, too.
        quote_spanned!(first=> const _: () = { let _ = ::core::marker::PhantomData::<#group>; }; #named #typed)
    });
    blocks.collect()
}

/// Any two verbs that take events from senders take different event types, except within an `on` block.
fn an_event_type_is_of_one_verb(declared: &Declared, graph: &Graph) -> TokenStream {
    let sent: Vec<&MachineVerb> = graph.verbs.iter().filter(|state| !state.is_timed).collect();
    let checks = sent.iter().enumerate().skip(1).map(|(i, state)| {
        let event = state.event();
        let others = sent[..i].iter().filter(|other| state.group.is_none() || other.group.is_none());
        let checks = others.map(|other| {
            let (other_event, (message, help)) = (other.event(), shared_event(declared, other, state));
            check(state.verb.span(), &quote!(!::fsm::__private::same(#event, #other_event)), &message, &help)
        });
        checks.collect::<TokenStream>()
    });
    checks.collect()
}

/// Returns the message and the help about two verbs that take the same event type.
fn shared_event(declared: &Declared, first: &MachineVerb, second: &MachineVerb) -> (String, String) {
    let (a_froms, b_froms) = (froms(declared, first), froms(declared, second));
    let (a, b) = (&first.name, &second.name);
    let own = "give one of the two verbs an event type of its own".to_owned();
    if let Some(from) = a_froms.intersection(&b_froms).next() {
        let edges = from.as_ref().map_or("two starts".into(), |from| format!("two edges from `{from}`"));
        let message = format!("{edges} take the same event type: an event says which edge is taken, and `{a}` and `{b}` have the same one");
        return (message, own);
    }
    let statement = |verb: &MachineVerb, from: &Option<String>| match from {
        Some(state) if !verb.enters => format!("{state} stays on {};", verb.name),
        Some(state) => format!("{state} -> {};", verb.name),
        None => format!("start {};", verb.name),
    };
    let statements = a_froms.iter().map(|from| statement(first, from)).chain(b_froms.iter().map(|from| statement(second, from)));
    let statements: Vec<String> = statements.collect();
    let message = format!("the verbs `{a}` and `{b}` take the same event type, which an `on` block must say");
    (message, format!("write `on ThatEvent {{ {} }}`", statements.join(" ")))
}

/// Returns the states from which a verb is called; `None` is the start.
fn froms(declared: &Declared, verb: &MachineVerb) -> BTreeSet<Option<String>> {
    let is_start = declared.starts.iter().any(|start| names::state(&start.state) == verb.name);
    let edges = declared.edges.iter().filter(|edge| names::state(&edge.to) == verb.name).map(|edge| &edge.from);
    let stays = declared.stays.iter().filter(|stay| names::state(&stay.verb) == verb.name).map(|stay| &stay.state);
    edges.chain(stays).map(|from| Some(names::state(from))).chain(is_start.then_some(None)).collect()
}

/// The catch verb of a machine's default policy fits every verb that has no policy of its own.
fn the_default_catch_fits_every_verb(declared: &Declared, graph: &Graph) -> TokenStream {
    let Some(Retry::Policy(policy)) = &declared.retry else { return TokenStream::new() };
    let Some(catch) = &policy.catch else { return TokenStream::new() };
    let name = names::state(catch);
    let keeps = match &aliases::record(declared) {
        Some(record) => quote_spanned!(catch.span()=> const _: () = ::fsm::__private::keeps::<__Catch, #record>();),
        None => quote_spanned!(catch.span()=> const _: () = ::fsm::__private::keeps_nothing::<__Catch>();),
    };
    let fits = graph.verbs.iter().map(|state| {
        let (verb, event) = (&state.verb, state.event());
        let message = format!(
            "the default `catch = {name}` does not fit the verb `{}`: a catch verb takes `Caught` of the event that it catches for",
            state.name
        );
        let help = format!("give `{}` a `#[retry(…)]` of its own, or let `{name}` take `Caught<serde_json::Value>`", state.name);
        let fits = quote! {
            !::fsm::__private::inherits(<#verb as ::fsm::__private::Verb>::ENTRY)
                || ::fsm::__private::is_caught(<__Catch as ::fsm::__private::Verb>::EVENT, #event)
        };
        check(catch.span(), &fits, &message, &help)
    });
    let fits: TokenStream = fits.collect();
    quote!(#keeps #fits)
}
