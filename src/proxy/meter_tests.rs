use proptest::prelude::*;

use kvro_ledger::event::TokenUsage;

use super::*;
use crate::gate::{Fees, Side, Usage};
use crate::inference::{Provider, Route};

fn dialect(path: &str) -> &'static Dialect {
    let provider = match path {
        MESSAGES => Provider::Anthropic,
        GEMINI => Provider::Gemini,
        _ => Provider::OpenAi,
    };
    let Route::Billable(dialect, _) = Route::of(provider, "POST", path) else {
        panic!("{path} is not billable")
    };
    dialect
}

/// What a metered answer came to: what was said, what passed, how it ended.
fn run(path: &str, usage: UsageAsk, pieces: &[&[u8]]) -> (Tally, Vec<u8>, Ending) {
    let mut meter = Meter::new(dialect(path), usage, Declared::Stream);
    let mut passed = Vec::new();
    for piece in pieces {
        passed.extend_from_slice(&meter.feed(Bytes::copy_from_slice(piece)));
    }
    let (rest, ending) = meter.finish();
    passed.extend_from_slice(&rest);
    (meter.tally().clone(), passed, ending)
}

fn usage(path: &str, answer: &str) -> (Usage, Extent) {
    let (tally, _, _) = run(path, UsageAsk::AsIs, &[answer.as_bytes()]);
    let extent = tally.extent();
    (tally.usage, extent)
}

fn tokens(path: &str, answer: &str) -> TokenUsage {
    usage(path, answer).0.tokens
}

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const GEMINI: &str = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";

const STREAMS: [(&str, &str); 4] = [
    (
        MESSAGES,
        concat!(
            "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-é\",\"usage\":{\"input_tokens\":1000,\"cache_creation_input_tokens\":2000,\"cache_read_input_tokens\":3000,\"cache_creation\":{\"ephemeral_5m_input_tokens\":1500,\"ephemeral_1h_input_tokens\":500},\"output_tokens\":1}}}\r\n\r\n",
            ": ping\n\ndata:{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\"\"}}\r\r",
            "data: {\"type\":\"message_delta\",\ndata: \"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":40,\"input_tokens\":0}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
    ),
    (
        CHAT,
        concat!(
            "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"pöng\"},\"finish_reason\":null}],\"usage\":null}\n\n",
            "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"model\":\"gpt-5\",\"choices\":[],\"usage\":{\"prompt_tokens\":6000,\"completion_tokens\":40,\"prompt_tokens_details\":{\"cached_tokens\":3000}}}\n\n",
            "data: [DONE]",
        ),
    ),
    (
        RESPONSES,
        concat!(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-6-sol\",\"usage\":null}}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"pong\"}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-6-sol\",\"service_tier\":\"default\",\"output\":[{\"type\":\"web_search_call\"},{\"type\":\"message\"}],\"usage\":{\"input_tokens\":6000,\"input_tokens_details\":{\"cached_tokens\":3000,\"cache_write_tokens\":1000,\"cache_write_tokens_details\":{\"ttl_30m_tokens\":900}},\"output_tokens\":40}}}\n\n",
        ),
    ),
    (
        GEMINI,
        concat!(
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"pöng\"}]}}],\"modelVersion\":\"gemini-2.5-pro\",\"usageMetadata\":{\"promptTokenCount\":6000,\"cachedContentTokenCount\":3000,\"thoughtsTokenCount\":25}}\r\n\r\n",
            "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"modelVersion\":\"gemini-2.5-pro\",\"usageMetadata\":{\"promptTokenCount\":6000,\"cachedContentTokenCount\":3000,\"candidatesTokenCount\":40,\"thoughtsTokenCount\":60,\"toolUsePromptTokenCount\":100,\"totalTokenCount\":6200,\"trafficType\":\"ON_DEMAND\"}}\r\n\r\n",
        ),
    ),
];

#[test]
fn metering_does_not_depend_on_where_a_stream_is_cut() {
    for (path, stream) in STREAMS {
        for ask in [UsageAsk::AsIs, UsageAsk::Inject] {
            let bytes = stream.as_bytes();
            let whole = run(path, ask, &[bytes]);
            assert_eq!((whole.0.extent(), whole.2), (Extent::Whole, Ending::Whole), "{path}");
            if ask == UsageAsk::AsIs {
                assert_eq!(whole.1, bytes);
            }
            for at in 0..=bytes.len() {
                let cut = run(path, ask, &[&bytes[..at], &bytes[at..]]);
                assert_eq!((&cut.0, cut.2), (&whole.0, whole.2), "{path} cut at {at}");
                assert_eq!(lines(&cut.1), lines(&whole.1), "{path} cut at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(run(path, ask, &single).0, whole.0);
        }
    }
}

/// A line feed of a dropped event may stay behind its carriage return; it means nothing.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split(|b| matches!(b, b'\r' | b'\n')).filter(|line| !line.is_empty()).collect()
}

proptest! {
    #[test]
    fn metering_does_not_depend_on_how_often_a_stream_is_cut(
        which in 0..STREAMS.len(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (path, stream) = STREAMS[which];
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(run(path, UsageAsk::AsIs, &pieces), run(path, UsageAsk::AsIs, &[bytes]));
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_before_its_end_is_never_whole() {
    for (path, stream) in STREAMS {
        // The last event of each says that the answer is over.
        let last = stream.rfind("data:").unwrap();
        for end in 0..last {
            let (tally, _, ending) = run(path, UsageAsk::AsIs, &[&stream.as_bytes()[..end]]);
            // A chat is over as well once it has both its finish and its usage.
            let told = path == CHAT && tally.extent() == Extent::Whole;
            assert!(ending == Ending::Cut || told, "{path} cut at {end}");
        }
    }
}

#[test]
fn the_last_cumulative_value_wins_and_a_zero_replaces_nothing() {
    let stream = |delta: &str| {
        format!(
            "data: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":3}}}}}}\n\n\
             data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{{delta}}}}}\n\n"
        )
    };
    let usage = |input, cache_read, output| TokenUsage {
        input,
        cache_read,
        output,
        ..TokenUsage::default()
    };
    for (delta, expected) in [
        ("\"output_tokens\":40", usage(10, 5, 40)),
        (
            "\"output_tokens\":40,\"input_tokens\":12,\"cache_read_input_tokens\":0",
            usage(12, 5, 40),
        ),
        ("\"output_tokens\":0,\"input_tokens\":0", usage(10, 5, 3)),
        ("\"output_tokens\":2,\"input_tokens\":8", usage(8, 5, 2)),
        ("\"output_tokens\":null", usage(10, 5, 3)),
    ] {
        assert_eq!(tokens(MESSAGES, &stream(delta)), expected, "{delta}");
    }
}

#[test]
fn cache_writes_that_the_split_does_not_cover_are_taken_as_long_ones() {
    let written = |usage: &str| {
        let tokens = tokens(MESSAGES, &format!("{{\"usage\":{{\"input_tokens\":3,{usage}}}}}"));
        (tokens.cache_write, tokens.cache_write_long)
    };
    let split =
        "\"cache_creation\":{\"ephemeral_5m_input_tokens\":4,\"ephemeral_1h_input_tokens\":12300}";
    assert_eq!(
        written(&format!("\"cache_creation_input_tokens\":12304,{split}")),
        (12_304, 12_300)
    );
    assert_eq!(
        written(&format!("\"cache_creation_input_tokens\":20000,{split}")),
        (20_000, 19_996)
    );
    assert_eq!(written("\"cache_creation_input_tokens\":20000"), (20_000, 20_000));
    assert_eq!(written("\"output_tokens\":1"), (0, 0));
}

#[test]
fn generations_beside_the_answer_are_added_and_declined_ones_are_not() {
    let answer = "{\"model\":\"m\",\"usage\":{\"input_tokens\":100,\"output_tokens\":10,\
        \"server_tool_use\":{\"web_search_requests\":3},\"iterations\":[\
        {\"type\":\"compaction\",\"input_tokens\":900,\"output_tokens\":90},\
        {\"type\":\"advisor_message\",\"model\":\"big\",\"input_tokens\":7,\"cache_creation_input_tokens\":2,\"output_tokens\":1},\
        {\"type\":\"message\",\"input_tokens\":60,\"output_tokens\":4},\
        {\"type\":\"message\",\"input_tokens\":30,\"cache_read_input_tokens\":10,\"output_tokens\":6}]}}";
    let plain = TokenUsage::default();
    let (usage, extent) = usage(MESSAGES, answer);
    assert_eq!(extent, Extent::Whole);
    assert_eq!(
        usage,
        Usage {
            model: Some("m".to_owned()),
            tokens: TokenUsage { input: 100, output: 10, web_searches: 3, ..plain },
            context_tokens: 40,
            others: vec![
                Side { model: None, tokens: TokenUsage { input: 900, output: 90, ..plain } },
                Side {
                    model: Some("big".to_owned()),
                    tokens: TokenUsage {
                        input: 7,
                        cache_write: 2,
                        cache_write_long: 2,
                        output: 1,
                        ..plain
                    },
                },
            ],
            ..Usage::default()
        }
    );
    assert_eq!(usage.total().input, 1_007);
}

#[test]
fn cached_tokens_are_part_of_an_inclusive_count_and_are_taken_out_of_it() {
    let chat = "{\"usage\":{\"prompt_tokens\":2459,\"prompt_tokens_details\":{\"cached_tokens\":2455},\"completion_tokens\":23}}";
    let expected = TokenUsage { input: 4, cache_read: 2_455, output: 23, ..TokenUsage::default() };
    assert_eq!(tokens(CHAT, chat), expected);
    let expected = TokenUsage {
        input: 2_000,
        cache_read: 3_000,
        cache_write: 1_000,
        cache_write_long: 100,
        output: 40,
        web_searches: 1,
    };
    assert_eq!(tokens(RESPONSES, STREAMS[2].1), expected);
}

#[test]
fn geminis_chunks_are_cumulative_and_thoughts_are_output() {
    let expected =
        TokenUsage { input: 3_100, cache_read: 3_000, output: 100, ..TokenUsage::default() };
    assert_eq!(tokens(GEMINI, STREAMS[3].1), expected);
    // The same as one array, and as one answer.
    let chunks = STREAMS[3].1.replace("data: ", "").trim().replace("\r\n\r\n", ",");
    assert_eq!(tokens(GEMINI, &format!("[{chunks}]")), expected);
    let last = chunks.rsplit_once("},{").unwrap().1;
    assert_eq!(tokens(GEMINI, &format!("{{{last}")), expected);
}

#[test]
fn geminis_refused_prompt_is_billed_and_its_traffic_is_a_tier() {
    let answer = |traffic: &str| {
        format!(
            "{{\"promptFeedback\":{{\"blockReason\":\"SAFETY\"}},\"usageMetadata\":{{\"promptTokenCount\":9,\"trafficType\":\"{traffic}\"}}}}"
        )
    };
    for (traffic, tier) in [
        ("ON_DEMAND", None),
        ("ON_DEMAND_PRIORITY", Some("priority")),
        ("ON_DEMAND_FLEX", Some("flex")),
        ("PROVISIONED_THROUGHPUT", Some("PROVISIONED_THROUGHPUT")),
    ] {
        let (usage, extent) = usage(GEMINI, &answer(traffic));
        assert_eq!((usage.tokens.input, extent), (9, Extent::Whole), "{traffic}");
        assert_eq!(usage.terms.tier.as_deref(), tier, "{traffic}");
    }
}

#[test]
fn numbers_that_no_count_can_be_are_no_report_and_the_largest_do_not_wrap() {
    for number in ["-1", "1.5", "1e3", "\"7\"", "18446744073709551616", "NaN", "[]", "true"] {
        for (path, answer) in [
            (MESSAGES, format!("{{\"usage\":{{\"input_tokens\":{number},\"output_tokens\":2}}}}")),
            (CHAT, format!("{{\"usage\":{{\"prompt_tokens\":{number},\"completion_tokens\":2}}}}")),
            (RESPONSES, format!("{{\"usage\":{{\"input_tokens\":{number},\"output_tokens\":2}}}}")),
            (
                GEMINI,
                format!(
                    "{{\"usageMetadata\":{{\"promptTokenCount\":{number},\"candidatesTokenCount\":2}}}}"
                ),
            ),
        ] {
            assert_eq!(usage(path, &answer).1, Extent::Nothing, "{path} {number}");
        }
    }
    let most = u64::MAX;
    for (path, answer) in [
        (
            MESSAGES,
            format!(
                "{{\"usage\":{{\"input_tokens\":{most},\"cache_read_input_tokens\":{most},\"cache_creation_input_tokens\":{most},\"output_tokens\":{most},\"iterations\":[{{\"type\":\"message\",\"input_tokens\":{most},\"cache_read_input_tokens\":{most}}},{{\"type\":\"compaction\",\"input_tokens\":{most}}}]}}}}"
            ),
        ),
        (
            CHAT,
            format!(
                "{{\"usage\":{{\"prompt_tokens\":{most},\"completion_tokens\":{most},\"prompt_tokens_details\":{{\"cached_tokens\":{most}}}}}}}"
            ),
        ),
        (
            GEMINI,
            format!(
                "{{\"usageMetadata\":{{\"promptTokenCount\":{most},\"toolUsePromptTokenCount\":{most},\"candidatesTokenCount\":{most},\"thoughtsTokenCount\":{most}}}}}"
            ),
        ),
    ] {
        let total = usage(path, &answer).0.total();
        assert_eq!(total.output, most, "{path}");
    }
}

#[test]
fn of_two_usage_chunks_the_last_counts() {
    let stream = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n";
    let expected = TokenUsage { input: 1, cache_read: 8, output: 2, ..TokenUsage::default() };
    assert_eq!(tokens(CHAT, stream), expected);
}

#[test]
fn an_answer_cut_by_its_limit_is_billed_and_a_failed_one_without_numbers_is_unknown() {
    let event = |kind: &str, usage: &str| {
        format!("data: {{\"type\":\"response.{kind}\",\"response\":{{\"usage\":{usage}}}}}\n\n")
    };
    let counted = "{\"input_tokens\":9,\"output_tokens\":2}";
    for kind in ["completed", "incomplete", "failed"] {
        let (usage, extent) = usage(RESPONSES, &event(kind, counted));
        assert_eq!((usage.tokens.input, usage.tokens.output, extent), (9, 2, Extent::Whole));
    }
    assert_eq!(usage(RESPONSES, &event("failed", "null")).1, Extent::Nothing);
}

#[test]
fn tools_with_fees_that_no_price_lists_are_noticed() {
    let answer = "{\"output\":[{\"type\":\"code_interpreter_call\"}],\"usage\":{\"input_tokens\":9,\"output_tokens\":2}}";
    assert_eq!(usage(RESPONSES, answer).0.fees, Fees::Unlisted);
}

#[test]
fn only_the_chunk_that_tells_nothing_but_usage_is_taken_out() {
    let (path, stream) = STREAMS[1];
    let (_, passed, _) = run(path, UsageAsk::Inject, &[stream.as_bytes()]);
    let without: String =
        stream.split_inclusive("\n\n").filter(|e| !e.contains("\"choices\":[],")).collect();
    assert_eq!(String::from_utf8(passed).unwrap(), without);
}

#[test]
fn an_answer_is_known_by_its_first_byte_and_not_by_its_type() {
    let json = "\n {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}";
    for declared in [Declared::Stream, Declared::Other] {
        for (answer, input) in [(json, 9), (STREAMS[1].1, 3_000)] {
            let mut meter = Meter::new(dialect(CHAT), UsageAsk::AsIs, declared);
            meter.feed(Bytes::from(answer));
            meter.finish();
            assert_eq!(meter.tally().usage.tokens.input, input);
        }
    }
}
