// `#[verb]`

/// Opens the door.
pub async fn opened(
    ctx: &mut Ctx<'_>,
    record: &mut Count,
    motor: Data<Motor>,
    event: Opened,
) -> Result {}
#[retry(__read_by_verb)]
const _: () = ();
#[doc(hidden)]
#[allow(
    non_camel_case_types,
    dead_code,
    private_bounds,
    private_interfaces,
    missing_debug_implementations
)]
pub enum opened<__Event = Opened, __Catch = recover> {
    __Named(::core::marker::PhantomData<(__Event, __Catch)>),
}
const _: () = {
    type __Catch = <opened as ::fsm::__private::Verb>::Catch;
    const _: () = ::fsm::__private::catches::<
        <__Catch as ::fsm::__private::Verb>::Event,
        Opened,
    >();
    static __POLICY: ::fsm::__private::PolicyEntry = ::fsm::__private::PolicyEntry {
        max_attempts: ::core::option::Option::Some(11u32),
        min: ::core::time::Duration::from_micros(5000000u64),
        max: ::core::time::Duration::from_micros(3600000000u64),
        backoff: 2.0,
        jitter: 0.0,
        within: ::core::option::Option::None,
        give_up_on: &[
            ::fsm::__private::GiveUpEntry {
                name: "Jammed",
                is: ::fsm::__private::is_error::<Jammed>,
            },
        ],
        give_up_if: ::core::option::Option::None,
        delay: ::core::option::Option::None,
        catch: ::core::option::Option::Some(<__Catch as ::fsm::__private::Verb>::ENTRY),
    };
    #[allow(unused_variables)]
    fn __run<'a>(
        ctx: &'a mut ::fsm::__private::Ctx<'_>,
        input: ::fsm::__private::Input<'a>,
    ) -> ::fsm::__private::Running<'a> {
        use ::fsm::__private::{ThrownPlain as _, ThrownRetryable as _};
        ::std::boxed::Box::pin(async move {
            let mut record = ::fsm::__private::decode_record::<
                Count,
            >("Count", input.record)?;
            let data_2 = ::fsm::__private::data::<Motor>(&*ctx);
            let event = ::fsm::__private::decode_event::<Opened>("Opened", input.event)?;
            let __outcome = ::fsm::__private::assert_send(
                    opened(ctx, &mut record, data_2, event),
                )
                .await;
            match ::fsm::__private::returned(__outcome) {
                ::core::result::Result::Ok(()) => {
                    ::fsm::__private::encode_record::<Count>("Count", &record)
                }
                ::core::result::Result::Err(__error) => {
                    ::core::result::Result::Err(
                        (&&::fsm::__private::Thrown::new(__error)).failure(),
                    )
                }
            }
        })
    }
    static __DATA: &[::fsm::__private::DataEntry] = &[
        ::fsm::__private::data_entry::<Motor>(),
    ];
    fn __decodes(__bytes: &[u8]) -> ::core::option::Option<::std::string::String> {
        use ::fsm::__private::{DecodingAny as _, DecodingReadable as _};
        (&&::fsm::__private::Decoding::<Opened>::NEW).why_not(__bytes)
    }
    static __ENTRY: ::fsm::__private::VerbEntry = ::fsm::__private::VerbEntry {
        name: "opened",
        module: ::core::module_path!(),
        docs: "Opens the door.",
        file: ::core::file!(),
        line: 4u32,
        event: "Opened",
        event_type: ::core::any::TypeId::of::<Opened>,
        timeout: ::core::option::Option::Some(
            ::core::time::Duration::from_micros(30000000u64),
        ),
        retry: ::fsm::__private::RetryEntry::Policy(&__POLICY),
        limit: ::core::option::Option::None,
        heartbeat: ::core::option::Option::None,
        data: __DATA,
        decodes: __decodes,
        run: ::fsm::__private::Run::Async(__run),
    };
    #[automatically_derived]
    impl<__Catch> ::fsm::__private::Verb for opened<Opened, __Catch> {
        type Event = Opened;
        type Catch = __Catch;
        type Checked = ::fsm::__private::Unchecked;
        const EVENT: &'static str = "Opened";
        const ENTRY: &'static ::fsm::__private::VerbEntry = &__ENTRY;
    }
    #[automatically_derived]
    impl<__Catch> ::fsm::__private::Keeps<Count> for opened<Opened, __Catch> {}
    ::fsm::__private::inventory::submit! {
        ::fsm::__private::VerbRef(& __ENTRY)
    }
};

// `fsm!`

/// A door.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
pub struct Door;
/// The states of [`Door`].
#[derive(
    ::core::fmt::Debug,
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash
)]
pub enum DoorState {
    /// Entered by the verb `opened`.
    Opened,
    /// Entered by the verb `closed`.
    Closed,
    /// Entered by the verb `expired`.
    Expired,
    /// Entered by the verb `locked`.
    Locked,
    /// Entered by the verb `bolted`.
    Bolted,
}
impl DoorState {
    /// The state's name, in the database and on the screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::Expired => "expired",
            Self::Locked => "locked",
            Self::Bolted => "bolted",
        }
    }
}
#[automatically_derived]
impl ::core::fmt::Display for DoorState {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.pad(Self::as_str(*self))
    }
}
#[automatically_derived]
impl ::core::str::FromStr for DoorState {
    type Err = ::fsm::__private::UnknownState;
    fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
        match text {
            "opened" => ::core::result::Result::Ok(Self::Opened),
            "closed" => ::core::result::Result::Ok(Self::Closed),
            "expired" => ::core::result::Result::Ok(Self::Expired),
            "locked" => ::core::result::Result::Ok(Self::Locked),
            "bolted" => ::core::result::Result::Ok(Self::Bolted),
            _ => {
                ::core::result::Result::Err(
                    ::fsm::__private::UnknownState::new(
                        "door",
                        text,
                        &["opened", "closed", "expired", "locked", "bolted"],
                    ),
                )
            }
        }
    }
}
#[automatically_derived]
impl ::fsm::__private::serde::Serialize for DoorState {
    fn serialize<S: ::fsm::__private::serde::Serializer>(
        &self,
        to: S,
    ) -> ::core::result::Result<S::Ok, S::Error> {
        to.serialize_str(Self::as_str(*self))
    }
}
#[automatically_derived]
impl<'de> ::fsm::__private::serde::Deserialize<'de> for DoorState {
    fn deserialize<D: ::fsm::__private::serde::Deserializer<'de>>(
        from: D,
    ) -> ::core::result::Result<Self, D::Error> {
        let text = <::std::string::String as ::fsm::__private::serde::Deserialize<
            'de,
        >>::deserialize(from)?;
        ::core::str::FromStr::from_str(&text)
            .map_err(<D::Error as ::fsm::__private::serde::de::Error>::custom)
    }
}
const _: () = {
    type __Verb0 = opened;
    type __Verb1 = doors::closed;
    type __Verb2 = expired;
    type __Verb3 = locked;
    type __Verb4 = bolted;
    type __Record = Count;
    #[allow(dead_code)]
    type __Group0 = Lock;
    static __POLICY: ::fsm::__private::PolicyEntry = ::fsm::__private::PolicyEntry {
        max_attempts: ::core::option::Option::None,
        min: ::core::time::Duration::from_micros(1000000u64),
        max: ::core::time::Duration::from_micros(1000000u64),
        backoff: 2.0,
        jitter: 0.0,
        within: ::core::option::Option::None,
        give_up_on: &[],
        give_up_if: ::core::option::Option::None,
        delay: ::core::option::Option::None,
        catch: ::core::option::Option::None,
    };
    static __ENTRY: ::fsm::__private::MachineEntry = ::fsm::__private::MachineEntry {
        name: "door",
        docs: "A door.",
        module: ::core::module_path!(),
        record: ::core::option::Option::Some("Count"),
        retry: ::fsm::__private::RetryEntry::Policy(&__POLICY),
        edges: &[
            ::fsm::__private::EdgeEntry::new(
                ::core::option::Option::None,
                <__Verb0 as ::fsm::__private::Verb>::ENTRY,
            ),
            ::fsm::__private::EdgeEntry::new(
                ::core::option::Option::Some("opened"),
                <__Verb1 as ::fsm::__private::Verb>::ENTRY,
            ),
            ::fsm::__private::EdgeEntry {
                after: ::core::option::Option::Some(
                    ::fsm::__private::WaitEntry::Fixed(
                        ::core::time::Duration::from_micros(1800000000u64),
                    ),
                ),
                ..::fsm::__private::EdgeEntry::new(
                    ::core::option::Option::Some("opened"),
                    <__Verb2 as ::fsm::__private::Verb>::ENTRY,
                )
            },
            ::fsm::__private::EdgeEntry::new(
                ::core::option::Option::Some("opened"),
                <__Verb3 as ::fsm::__private::Verb>::ENTRY,
            ),
            ::fsm::__private::EdgeEntry::new(
                ::core::option::Option::Some("closed"),
                <__Verb4 as ::fsm::__private::Verb>::ENTRY,
            ),
        ],
        ends: &["expired", "locked", "bolted"],
        search: ::core::option::Option::None,
    };
    #[automatically_derived]
    impl ::fsm::__private::Machine for Door {
        type State = DoorState;
        type Record = __Record;
        const NAME: &'static str = "door";
        const ENTRY: &'static ::fsm::__private::MachineEntry = &__ENTRY;
    }
    #[automatically_derived]
    impl ::fsm::__private::Accepts<<__Verb0 as ::fsm::__private::Verb>::Event> for Door {
        const EVENT: &'static str = <__Verb0 as ::fsm::__private::Verb>::EVENT;
    }
    #[automatically_derived]
    impl ::fsm::__private::Accepts<
        <::fsm::__private::Condition<
            {
                ::fsm::__private::is_none_of(
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                    &[<__Verb0 as ::fsm::__private::Verb>::EVENT],
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb1 as ::fsm::__private::Verb>::Event,
            __Verb1,
        >>::Picked,
    > for Door {
        const EVENT: &'static str = <__Verb1 as ::fsm::__private::Verb>::EVENT;
    }
    #[automatically_derived]
    impl ::fsm::__private::Accepts<
        <::fsm::__private::Condition<
            {
                ::fsm::__private::is_none_of(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    &[
                        <__Verb0 as ::fsm::__private::Verb>::EVENT,
                        <__Verb1 as ::fsm::__private::Verb>::EVENT,
                    ],
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb3 as ::fsm::__private::Verb>::Event,
            __Verb3,
        >>::Picked,
    > for Door {
        const EVENT: &'static str = <__Verb3 as ::fsm::__private::Verb>::EVENT;
    }
    #[automatically_derived]
    impl ::fsm::__private::VerbOf<Door> for __Verb0 {}
    #[automatically_derived]
    impl ::fsm::__private::TakesNext<
        Door,
        <::fsm::__private::Condition<
            {
                ::fsm::__private::is_none_of(
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                    &[],
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb1 as ::fsm::__private::Verb>::Event,
            __Verb0,
        >>::Picked,
    > for __Verb0 {}
    #[automatically_derived]
    impl ::fsm::__private::TakesNext<
        Door,
        <::fsm::__private::Condition<
            {
                ::fsm::__private::is_none_of(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    &[<__Verb1 as ::fsm::__private::Verb>::EVENT],
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb3 as ::fsm::__private::Verb>::Event,
            __Verb0,
        >>::Picked,
    > for __Verb0 {}
    #[automatically_derived]
    impl ::fsm::__private::VerbOf<Door> for __Verb1 {}
    #[automatically_derived]
    impl ::fsm::__private::TakesNext<
        Door,
        <::fsm::__private::Condition<
            {
                ::fsm::__private::is_none_of(
                    <__Verb4 as ::fsm::__private::Verb>::EVENT,
                    &[],
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb4 as ::fsm::__private::Verb>::Event,
            __Verb1,
        >>::Picked,
    > for __Verb1 {}
    #[automatically_derived]
    impl ::fsm::__private::VerbOf<Door> for __Verb2 {}
    #[automatically_derived]
    impl ::fsm::__private::VerbOf<Door> for __Verb3 {}
    #[automatically_derived]
    impl ::fsm::__private::VerbOf<Door> for __Verb4 {}
    const _: () = ::fsm::__private::keeps::<__Verb0, __Record>();
    const _: () = ::fsm::__private::keeps::<__Verb1, __Record>();
    const _: () = ::fsm::__private::keeps::<__Verb2, __Record>();
    const _: () = ::fsm::__private::keeps::<__Verb3, __Record>();
    const _: () = ::fsm::__private::keeps::<__Verb4, __Record>();
    const _: () = ::fsm::__private::is_timeout::<
        <__Verb2 as ::fsm::__private::Verb>::Event,
    >();
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `opened` takes `Timeout`, which only a timer delivers",
            label = "not accepted by the machine",
            note = "no instance can start with it; start with a verb that takes another event"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb0 as ::fsm::__private::Verb>::EVENT,
                    "Timeout",
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `closed` takes `Timeout`, which only a timer delivers",
            label = "not accepted by the machine",
            note = "write `opened after \"30m\" -> closed;`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                    "Timeout",
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `locked` takes `Timeout`, which only a timer delivers",
            label = "not accepted by the machine",
            note = "write `opened after \"30m\" -> locked;`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    "Timeout",
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `bolted` takes `Timeout`, which only a timer delivers",
            label = "not accepted by the machine",
            note = "write `closed after \"30m\" -> bolted;`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb4 as ::fsm::__private::Verb>::EVENT,
                    "Timeout",
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "no instance starts with `opened`: its event tells an instance of the children that it has started",
            label = "not accepted by the machine",
            note = "start with a verb that takes another event, and write `that_state -> opened;`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::is_of_children(
                    <__Verb0 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    const _: () = ::fsm::__private::is_in_one_machine::<
        <__Verb0 as ::fsm::__private::Verb>::Checked,
        _,
    >();
    const _: () = ::fsm::__private::is_in_one_machine::<
        <__Verb1 as ::fsm::__private::Verb>::Checked,
        _,
    >();
    const _: () = ::fsm::__private::is_in_one_machine::<
        <__Verb2 as ::fsm::__private::Verb>::Checked,
        _,
    >();
    const _: () = ::fsm::__private::is_in_one_machine::<
        <__Verb3 as ::fsm::__private::Verb>::Checked,
        _,
    >();
    const _: () = ::fsm::__private::is_in_one_machine::<
        <__Verb4 as ::fsm::__private::Verb>::Checked,
        _,
    >();
    const _: () = {
        let _ = ::core::marker::PhantomData::<__Group0>;
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `locked` takes another event than `Lock`, the one of its `on` block",
            label = "not accepted by the machine",
            note = "write `on` with the event type that all its verbs take, by the name that they use, and move the others out of the block"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                let _ = ::core::marker::PhantomData::<__Group0>;
                ::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    "Lock",
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verb `bolted` takes another event than `Lock`, the one of its `on` block",
            label = "not accepted by the machine",
            note = "write `on` with the event type that all its verbs take, by the name that they use, and move the others out of the block"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                let _ = ::core::marker::PhantomData::<__Group0>;
                !::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    "Lock",
                )
                    || ::fsm::__private::same(
                        <__Verb4 as ::fsm::__private::Verb>::EVENT,
                        "Lock",
                    )
            },
        > as Rule>::KEPT
    };
    const _: () = ::fsm::__private::is_event::<
        <::fsm::__private::Condition<
            {
                ::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    "Lock",
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb3 as ::fsm::__private::Verb>::Event,
            __Group0,
        >>::Picked,
        __Group0,
    >();
    const _: () = ::fsm::__private::is_event::<
        <::fsm::__private::Condition<
            {
                ::fsm::__private::same(
                    <__Verb4 as ::fsm::__private::Verb>::EVENT,
                    "Lock",
                )
            },
        > as ::fsm::__private::Pick<
            <__Verb4 as ::fsm::__private::Verb>::Event,
            __Group0,
        >>::Picked,
        __Group0,
    >();
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verbs `opened` and `closed` take the same event type, which an `on` block must say",
            label = "not accepted by the machine",
            note = "write `on ThatEvent {{ start opened; opened -> closed; }}`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                    <__Verb0 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verbs `opened` and `locked` take the same event type, which an `on` block must say",
            label = "not accepted by the machine",
            note = "write `on ThatEvent {{ start opened; opened -> locked; }}`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    <__Verb0 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "two edges from `opened` take the same event type: an event says which edge is taken, and `closed` and `locked` have the same one",
            label = "not accepted by the machine",
            note = "give one of the two verbs an event type of its own"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb3 as ::fsm::__private::Verb>::EVENT,
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verbs `opened` and `bolted` take the same event type, which an `on` block must say",
            label = "not accepted by the machine",
            note = "write `on ThatEvent {{ start opened; closed -> bolted; }}`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb4 as ::fsm::__private::Verb>::EVENT,
                    <__Verb0 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    const _: () = {
        #[diagnostic::on_unimplemented(
            message = "the verbs `closed` and `bolted` take the same event type, which an `on` block must say",
            label = "not accepted by the machine",
            note = "write `on ThatEvent {{ opened -> closed; closed -> bolted; }}`"
        )]
        trait Rule {
            const KEPT: () = ();
        }
        #[diagnostic::do_not_recommend]
        impl Rule for ::fsm::__private::Condition<true> {}
        <::fsm::__private::Condition<
            {
                !::fsm::__private::same(
                    <__Verb4 as ::fsm::__private::Verb>::EVENT,
                    <__Verb1 as ::fsm::__private::Verb>::EVENT,
                )
            },
        > as Rule>::KEPT
    };
    ::fsm::__private::inventory::submit! {
        ::fsm::__private::MachineRef(& __ENTRY)
    }
};
