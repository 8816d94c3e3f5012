//! Makes text from a database harmless for a terminal: no key, payload or error can move the cursor, change a colour or reverse the text
//! direction.

/// Returns the text with all characters that control a terminal written as escapes.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c if controls_a_terminal(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// Returns JSON with the same characters written as JSON escapes. In valid JSON they only occur inside strings.
pub fn clean_json(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if controls_a_terminal(c) && c != '\n' {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| clean.push_str(&format!("\\u{unit:04x}")));
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Control characters, marks of text direction, line separators, and invisible characters that can hide text.
fn controls_a_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let cases = [
            ("order-7", "order-7"),
            ("été 日本 🙂", "été 日本 🙂"),
            ("\u{1b}[2J\u{1b}]0;owned\u{7}", "\\u{1b}[2J\\u{1b}]0;owned\\u{7}"),
            ("two\nlines\r\tand a tab", "two\\nlines\\r\\tand a tab"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("abc\u{202e}fdp.exe", "abc\\u{202e}fdp.exe"),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn json_stays_json_and_says_the_same() {
        let value = serde_json::json!({ "key": "a\u{9b}31m\u{202e}\u{1b}[0m\u{e0041}\n" });
        let cleaned = clean_json(&serde_json::to_string_pretty(&value).expect("it is JSON"));
        assert!(cleaned.chars().all(|c| c == '\n' || !controls_a_terminal(c)), "{cleaned:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&cleaned).expect("it is JSON"), value);
    }
}
