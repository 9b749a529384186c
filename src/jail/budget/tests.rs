use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use kvro_ledger::event::{Basis, CallKind, Cost, TokenUsage};
use kvro_ledger::{Event, MemoryLedger, PicoUsd, Recorder};
use kvro_proxy::gate::{
    Adjust, Ask, AskedCache, AskedTerms, Gate, InputBound, Outcome, OutputAsk, Permit, Refusal,
    Settlement, Side, Usage,
};
use kvro_proxy::inference::Provider;
use kvro_proxy::price::PriceTable;
use proptest::prelude::*;

use super::{Budget, KillSwitch, Spend, Used};
use crate::limits::{Limits, OnLimit, UnknownPrice};

#[derive(Debug, Default)]
struct Switch(Mutex<Vec<String>>);

impl Switch {
    fn pulls(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl KillSwitch for Switch {
    fn limit_reached(&self, limit: &str, _: &str) {
        self.0.lock().unwrap().push(limit.to_owned());
    }

    fn refused_again(&self) {
        self.0.lock().unwrap().push("again".to_owned());
    }

    fn warned(&self, _: &str) {}
}

struct Fixture {
    budget: Budget,
    ledger: MemoryLedger,
    switch: Arc<Switch>,
}

fn fixture(limits: Limits) -> Fixture {
    let (recorder, ledger) = Recorder::to_memory();
    let switch = Arc::new(Switch::default());
    let kill: Arc<dyn KillSwitch> = Arc::<Switch>::clone(&switch);
    let budget = Budget::new(limits, || PriceTable::builtin().unwrap(), recorder, kill);
    Fixture { budget, ledger, switch }
}

impl Fixture {
    /// The names of what was recorded, with the numbers that matter.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is expected here")]
    fn record(&self) -> Vec<String> {
        self.ledger
            .events()
            .into_iter()
            .map(|(_, event)| match event {
                Event::BudgetReserved(e) => {
                    format!("reserved {} through {}", e.slice_usd, e.through_usd)
                }
                Event::BudgetWarned(e) => {
                    format!("warned {} {}% {}/{}", e.limit, e.percent, e.used, e.ceiling)
                }
                Event::LimitReached(e) => format!("reached {} {}/{}", e.limit, e.used, e.ceiling),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn admit(&self, ask: &Ask) -> Result<Permit, Refusal> {
        self.budget.admit(ask)
    }

    /// The code of the refusal of `ask`.
    fn refused(&self, ask: &Ask) -> &'static str {
        match self.budget.admit(ask) {
            Ok(_) => "admitted",
            Err(refusal) => refusal.limit,
        }
    }

    fn spend(&self, ask: &Ask, usage: TokenUsage) -> Settlement {
        self.admit(ask).unwrap().settle(&Outcome::Reported(said(usage)))
    }
}

fn usd(text: &str) -> PicoUsd {
    text.parse().unwrap()
}

/// A turn of claude-opus-4-5: 5 dollars a million tokens in, 25 out.
fn turn() -> Ask {
    Ask {
        provider: Provider::Anthropic,
        model: "claude-opus-4-5".to_owned(),
        kind: CallKind::Turn,
        input: InputBound::Tokens(10_000),
        output: OutputAsk {
            limit: Some(1_000),
            floor: 0,
            adjust: Adjust::Allowed,
            answers: 1,
            extra: 0,
        },
        terms: AskedTerms { cache: AskedCache::Never, ..AskedTerms::default() },
        context_at_least: 2_000,
    }
}

fn asking(limit: Option<u64>) -> Ask {
    Ask { output: OutputAsk { limit, ..turn().output }, ..turn() }
}

fn tokens(input: u64, output: u64) -> TokenUsage {
    TokenUsage { input, output, ..TokenUsage::default() }
}

fn said(tokens: TokenUsage) -> Usage {
    Usage { tokens, context_tokens: tokens.input, ..Usage::default() }
}

fn max_usd(ceiling: &str) -> Limits {
    Limits { max_usd: Some(usd(ceiling)), ..Limits::none() }
}

#[test]
fn without_ceilings_a_call_keeps_its_own_limit_and_is_still_bounded_and_priced() {
    let fixture = fixture(Limits::none());
    let permit = fixture.admit(&turn()).unwrap();
    assert_eq!(permit.reservation().output_limit, None);
    assert_eq!(permit.reservation().cost, Some(usd("0.075")));
    let settled = permit.settle(&Outcome::Reported(said(tokens(2_000, 40))));
    let cost = Cost::Known(usd("0.011"));
    assert_eq!(settled, Settlement { kind: CallKind::Turn, cost, basis: Basis::Reported });
    assert_eq!(fixture.record(), [] as [String; 0]);
}

#[test]
fn an_unpriced_model_costs_unknown_without_a_ceiling_and_is_refused_under_one() {
    let ask = Ask { model: "gpt-6.2-sol".to_owned(), ..turn() };
    let settled = fixture(Limits::none()).spend(&ask, tokens(2_000, 40));
    assert_eq!((settled.cost, settled.basis), (Cost::Unknown, Basis::Reported));

    let strict = fixture(max_usd("5"));
    assert_eq!(strict.refused(&ask), "unknown_price");
    // Not a ceiling: the agent may go on with a model that has a price.
    assert_eq!(strict.switch.pulls(), [] as [String; 0]);
    assert_eq!(strict.refused(&turn()), "admitted");

    let lax = Limits { unknown_price: UnknownPrice::Allow, ..max_usd("5") };
    assert_eq!(fixture(lax).spend(&ask, tokens(2_000, 40)).cost, Cost::Unknown);
}

#[test]
fn what_was_used_is_known_until_a_call_has_no_price() {
    let fixture = fixture(Limits::none());
    fixture.spend(&turn(), tokens(2_000, 40));
    let cost = Spend::Known(usd("0.011"));
    assert_eq!(fixture.budget.used(), Used { turns: 1, tokens: 2_040, cost });
    let ask = Ask { model: "gpt-6.2-sol".to_owned(), ..turn() };
    fixture.spend(&ask, tokens(1, 1));
    assert_eq!(fixture.budget.used(), Used { turns: 2, tokens: 2_042, cost: Spend::Unknown });
    assert_eq!(
        (cost.to_string().as_str(), Spend::Unknown.to_string().as_str()),
        ("0.011", "unknown")
    );
}

#[test]
fn exactly_the_ceiling_of_turns_is_admitted_however_many_ask_at_once() {
    for ceiling in [0, 1, 3] {
        let limits = Limits { max_turns: Some(ceiling), ..Limits::none() };
        let fixture = fixture(limits);
        let start = Barrier::new(8);
        let admitted = thread::scope(|scope| {
            let ask = || {
                start.wait();
                fixture.admit(&turn()).ok()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(admitted.len() as u64, ceiling);
        let pulls = fixture.switch.pulls();
        assert_eq!(pulls.iter().filter(|pull| *pull == "max_turns").count(), 1);
        assert_eq!(pulls.iter().filter(|pull| *pull == "again").count() as u64, 7 - ceiling);
        assert_eq!(fixture.record(), [format!("reached max_turns {ceiling}/{ceiling}")]);
    }
}

#[test]
fn a_call_that_its_provider_rejected_is_no_turn_and_costs_nothing() {
    let limits = Limits { max_turns: Some(1), max_usd: Some(usd("1")), ..Limits::none() };
    let fixture = fixture(limits);
    let settled = fixture.admit(&turn()).unwrap().settle(&Outcome::Rejected);
    let cost = Cost::Known(PicoUsd::ZERO);
    assert_eq!(settled, Settlement { kind: CallKind::Call, cost, basis: Basis::Rejected });
    let billed = Outcome::RejectedAt(said(tokens(2_000, 0)));
    let settled = fixture.admit(&turn()).unwrap().settle(&billed);
    assert_eq!((settled.kind, settled.cost), (CallKind::Call, Cost::Known(usd("0.01"))));
    assert_eq!(fixture.spend(&turn(), tokens(1, 1)).kind, CallKind::Turn);
    assert_eq!(fixture.refused(&turn()), "max_turns");
}

#[test]
fn a_call_that_is_no_turn_needs_no_turn() {
    let limits = Limits { max_turns: Some(0), ..Limits::none() };
    let ask = Ask { kind: CallKind::Call, ..turn() };
    assert_eq!(fixture(limits).refused(&ask), "admitted");
}

#[test]
fn one_of_many_calls_fits_a_budget_for_one() {
    let fixture = fixture(max_usd("0.1"));
    let start = Barrier::new(8);
    // Each may cost 7.5 cents of the ten.
    let fixed = Ask { output: OutputAsk { floor: 1_000, ..turn().output }, ..turn() };
    let admitted = thread::scope(|scope| {
        let ask = || {
            start.wait();
            fixture.admit(&fixed).ok()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(admitted.len(), 1);
    assert_eq!(fixture.switch.pulls()[0], "max_usd");
}

#[test]
fn a_dropped_permit_is_charged_in_full_and_counts_as_a_turn() {
    let limits = Limits { max_turns: Some(2), max_usd: Some(usd("0.1")), ..Limits::none() };
    let fixture = fixture(limits);
    drop(fixture.admit(&turn()).unwrap());
    let refusal = fixture.admit(&turn()).unwrap_err();
    assert_eq!((refusal.limit, refusal.used.as_str()), ("max_usd", "0.075"));
}

#[test]
fn a_stream_that_broke_costs_its_input_and_the_most_it_can_have_said() {
    let fixture = fixture(max_usd("1"));
    let partial = Outcome::Partial(said(tokens(2_000, 1)));
    let settled = fixture.admit(&turn()).unwrap().settle(&partial);
    let cost = Cost::Known(usd("0.035"));
    assert_eq!(settled, Settlement { kind: CallKind::Turn, cost, basis: Basis::Reserved });
    let settled = fixture.admit(&turn()).unwrap().settle(&Outcome::Unknown);
    assert_eq!((settled.cost, settled.basis), (Cost::Known(usd("0.075")), Basis::Reserved));
}

#[test]
fn the_model_that_answered_prices_the_call_and_an_unknown_one_costs_the_reservation() {
    let fixture = fixture(max_usd("100"));
    let served = |model: &str| {
        let usage = Usage { model: Some(model.to_owned()), ..said(tokens(1_000, 0)) };
        let settled = fixture.admit(&turn()).unwrap().settle(&Outcome::Reported(usage));
        (settled.cost, settled.basis)
    };
    assert_eq!(served("claude-opus-4-5-20251101"), (Cost::Known(usd("0.005")), Basis::Reported));
    assert_eq!(served("claude-fable-5"), (Cost::Known(usd("0.01")), Basis::Reported));
    assert_eq!(served("claude-other-9"), (Cost::Known(usd("0.075")), Basis::Reserved));
}

#[test]
fn generations_beside_the_answer_are_paid_at_their_own_price() {
    let fixture = fixture(max_usd("100"));
    let side =
        |model: Option<&str>| Side { model: model.map(str::to_owned), tokens: tokens(1_000, 0) };
    let usage =
        Usage { others: vec![side(None), side(Some("claude-fable-5"))], ..said(tokens(1_000, 0)) };
    let settled = fixture.admit(&turn()).unwrap().settle(&Outcome::Reported(usage));
    assert_eq!(settled.cost, Cost::Known(usd("0.02")));
}

#[test]
fn under_a_money_ceiling_the_output_limit_sent_is_the_one_that_was_reserved() {
    let fixture = fixture(max_usd("5"));
    let limit = |asked| fixture.admit(&asking(asked)).unwrap().reservation().output_limit;
    // A modest limit is left as it is; the permits are dropped here, so each was charged.
    assert_eq!(limit(Some(1_000)), Some(1_000));
    // Half of what is left, less the input, at 25 dollars a million.
    assert_eq!(limit(Some(128_000)), Some(96_500));
    // Where the client sends none, the model's own largest answer is the wish.
    assert_eq!(limit(None), Some(47_250));
    let fixture = self::fixture(max_usd("100"));
    let permit = fixture.admit(&asking(None)).unwrap();
    assert_eq!(permit.reservation().output_limit, Some(64_000));
    assert_eq!(permit.reservation().cost, Some(usd("1.65")));
}

#[test]
fn a_limit_is_never_lowered_below_what_makes_the_request_valid() {
    let thinking =
        |floor| Ask { output: OutputAsk { limit: Some(32_000), floor, ..turn().output }, ..turn() };
    let fixture = fixture(max_usd("0.5"));
    assert_eq!(fixture.refused(&thinking(20_000)), "max_usd");
    let fixture = self::fixture(max_usd("0.6"));
    let permit = fixture.admit(&thinking(20_000)).unwrap();
    assert_eq!(permit.reservation().output_limit, Some(20_256));
}

#[test]
fn what_nothing_bounds_is_refused_under_a_money_ceiling_only() {
    let hosted = Ask { input: InputBound::Unbounded("a tool run by the provider"), ..turn() };
    assert_eq!(fixture(max_usd("100")).refused(&hosted), "unbounded");
    assert_eq!(fixture(Limits::none()).refused(&hosted), "admitted");
    // A window of 200,000 tokens at 5 dollars a million, twice, and an answer.
    let stored = Ask { input: InputBound::Windows(2), ..turn() };
    let permit = fixture(max_usd("100")).admit(&stored).unwrap();
    assert_eq!(permit.reservation().cost, Some(usd("2.025")));
}

#[test]
fn a_token_ceiling_lowers_limits_and_then_refuses() {
    let fixture = fixture(Limits { max_tokens: Some(10_000), ..Limits::none() });
    let permit = fixture.admit(&asking(Some(50_000))).unwrap();
    assert_eq!(permit.reservation().output_limit, Some(10_000));
    permit.settle(&Outcome::Reported(said(tokens(9_000, 500))));
    let permit = fixture.admit(&asking(Some(50_000))).unwrap();
    assert_eq!(permit.reservation().output_limit, Some(500));
    permit.settle(&Outcome::Reported(said(tokens(400, 0))));
    assert_eq!(fixture.refused(&asking(Some(50_000))), "max_tokens");
    assert_eq!(fixture.record(), ["reached max_tokens 9900/10000"]);
}

#[test]
fn a_context_ceiling_looks_at_the_last_turn_and_at_the_request() {
    let limits = Limits { max_context_tokens: Some(5_000), ..Limits::none() };
    let large = Ask { context_at_least: 5_001, ..turn() };
    assert_eq!(fixture(limits.clone()).refused(&large), "max_context_tokens");
    let fixture = fixture(limits);
    fixture.spend(&turn(), tokens(4_999, 1));
    fixture.spend(&turn(), tokens(5_000, 1));
    assert_eq!(fixture.refused(&turn()), "max_context_tokens");
}

#[test]
fn nothing_is_accepted_after_the_end_and_denial_alone_ends_nothing() {
    let limits = Limits { max_tokens: Some(10), ..Limits::none() };
    let kill = fixture(limits.clone());
    kill.spend(&asking(Some(1)), tokens(100, 1));
    assert_eq!(kill.refused(&turn()), "max_tokens");
    assert_eq!(kill.refused(&Ask { kind: CallKind::Call, ..turn() }), "max_tokens");
    assert_eq!(kill.switch.pulls(), ["max_tokens", "again"]);

    let deny = fixture(Limits { on_limit: OnLimit::Deny, ..limits });
    deny.spend(&asking(Some(1)), tokens(100, 1));
    assert_eq!(deny.refused(&turn()), "max_tokens");
    assert_eq!(deny.refused(&turn()), "max_tokens");
    assert_eq!(deny.switch.pulls(), [] as [String; 0]);
    assert_eq!(deny.record(), ["reached max_tokens 101/10"]);
}

#[test]
fn warnings_are_given_once_each() {
    let limits = Limits { warn_at: vec![50, 80], max_turns: Some(4), ..max_usd("0.1") };
    let fixture = fixture(limits);
    for _ in 0..3 {
        fixture.spend(&turn(), tokens(1_000, 0));
    }
    fixture.spend(&turn(), tokens(10_000, 800));
    let warnings: Vec<_> =
        fixture.record().into_iter().filter(|line| line.starts_with("warned")).collect();
    assert_eq!(
        warnings,
        [
            "warned max_turns 50% 2/4",
            "warned max_turns 80% 4/4",
            "warned max_usd 50% 0.085/0.1",
            "warned max_usd 80% 0.085/0.1",
        ]
    );
}

#[test]
fn money_is_on_record_before_it_can_be_spent() {
    let fixture = fixture(max_usd("1"));
    // Each holds 7.5 cents: a slice of a tenth lasts for the first, then the next one is taken.
    let first = fixture.admit(&turn()).unwrap();
    assert_eq!(fixture.record(), ["reserved 0.1 through 0.1"]);
    let second = fixture.admit(&turn()).unwrap();
    assert_eq!(fixture.record()[1..], ["reserved 0.1 through 0.2"]);
    first.settle(&Outcome::Reported(said(tokens(1, 0))));
    second.settle(&Outcome::Reported(said(tokens(1, 0))));
    fixture.spend(&turn(), tokens(1, 0));
    assert_eq!(fixture.record().len(), 2);
    assert_eq!(self::fixture(Limits::none()).record(), [] as [String; 0]);
}

#[test]
fn nothing_is_spent_that_the_ledger_cannot_hold() {
    let fixture = fixture(max_usd("1"));
    fixture.ledger.fill();
    assert_eq!(fixture.refused(&turn()), "ledger_failed");
    assert_eq!(fixture.refused(&turn()), "ledger_failed");
}

#[test]
fn a_refusal_says_what_is_spent_and_how_to_go_on() {
    let fixture = fixture(max_usd("0.1"));
    fixture.spend(&turn(), tokens(10_000, 1_000));
    assert_eq!(
        fixture.admit(&turn()).unwrap_err().message,
        "kvro-jail: run budget reached ($0.075 of $0.1 spent; the next call may cost more than is \
         left); raise it with --max-usd"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Admit { input: u64, limit: Option<u64>, model: usize },
    Settle { which: usize, how: u8, share: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let admit = (0..200_000_u64, prop::option::of(1..200_000_u64), 0..4_usize)
        .prop_map(|(input, limit, model)| Step::Admit { input, limit, model });
    let settle = (any::<usize>(), 0..4_u8, 0..=100_u64)
        .prop_map(|(which, how, share)| Step::Settle { which, how, share });
    prop_oneof![admit, settle]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is asked and however it ends, as long as providers keep to the limits they were
    /// sent, all that was charged stays within the ceiling, and so does what the ledger promises.
    #[test]
    fn spend_never_passes_its_ceiling(
        ceiling in 1..20_000_000_000_000_u128,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let ceiling = PicoUsd::new(ceiling);
        let limits = Limits { max_usd: Some(ceiling), on_limit: OnLimit::Deny, ..Limits::none() };
        let fixture = fixture(limits);
        let models = ["claude-opus-5-5", "claude-haiku-5-5", "gpt-6-sol", "gpt-5.4"];
        let mut open: Vec<Permit> = Vec::new();
        let mut spent = PicoUsd::ZERO;
        for step in steps {
            match step {
                Step::Admit { input, limit, model } => {
                    let ask = Ask {
                        model: models[model].to_owned(),
                        input: InputBound::Tokens(input),
                        terms: AskedTerms::default(),
                        ..asking(limit)
                    };
                    open.extend(fixture.admit(&ask).ok());
                }
                Step::Settle { which, how, share } if !open.is_empty() => {
                    let permit = open.swap_remove(which % open.len());
                    let held = permit.reservation().clone();
                    let part = |most: Option<u64>| most.unwrap_or(0) * share / 100;
                    let input = part(held.input);
                    let usage = said(TokenUsage {
                        input: input / 2,
                        cache_write: input - input / 2,
                        cache_write_long: input / 3,
                        output: part(held.output),
                        ..TokenUsage::default()
                    });
                    let settled = permit.settle(&match how {
                        0 => Outcome::Rejected,
                        1 => Outcome::Reported(usage),
                        2 => Outcome::Partial(usage),
                        _ => Outcome::Unknown,
                    });
                    let Cost::Known(cost) = settled.cost else {
                        return Err(TestCaseError::fail("a priced call has a cost"));
                    };
                    prop_assert!(Some(cost) <= held.cost);
                    spent = spent + cost;
                }
                Step::Settle { .. } => {}
            }
            let held: PicoUsd = open.iter().filter_map(|permit| permit.reservation().cost).sum();
            prop_assert!(spent + held <= ceiling);
            let promised = fixture.ledger.events().into_iter().filter_map(|(_, event)| {
                if let Event::BudgetReserved(event) = event { Some(event.through_usd) } else { None }
            });
            let promised = promised.max().unwrap_or_default();
            prop_assert!(spent + held <= promised && promised <= ceiling);
        }
    }
}
