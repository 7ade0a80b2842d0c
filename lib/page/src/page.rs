//! The page.

use std::fmt::Write;

use crate::cell::{Cell, Tone};
use crate::escape::escape;

const STYLE: &str = include_str!("style.css");

/// An HTML page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    pub(crate) body: String,
}

impl Page {
    /// Returns an empty page with a title.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: String::new(),
        }
    }

    /// Adds a word about the whole page, highlighted, and its reason.
    pub fn verdict(&mut self, tone: Tone, text: &str, reason: &str) -> &mut Self {
        let (badge, reason) = (Cell::badge(tone, text).content(), escape(reason));
        let _ = writeln!(self.body, "<p class=\"verdict\">{badge} {reason}</p>");
        self
    }

    /// Adds names with values, in a compact list.
    pub fn facts<'a>(&mut self, facts: impl IntoIterator<Item = (&'a str, String)>) -> &mut Self {
        self.body.push_str("<dl>");
        for (name, value) in facts {
            let (name, value) = (escape(name), escape(&value));
            let _ = write!(self.body, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        self.body.push_str("</dl>\n");
        self
    }

    /// Adds content that is folded away behind `summary`, if `is_long`; else plain.
    pub fn fold(&mut self, is_long: bool, summary: &str, add: impl FnOnce(&mut Self)) -> &mut Self {
        if !is_long {
            add(self);
            return self;
        }
        let summary = escape(summary);
        let _ = writeln!(self.body, "<details><summary>{summary}</summary>");
        add(self);
        self.body.push_str("</details>\n");
        self
    }

    /// Adds a section heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        self.element("h2", text)
    }

    /// Adds a subsection heading.
    pub fn subheading(&mut self, text: &str) -> &mut Self {
        self.element("h3", text)
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.element("p", text)
    }

    /// Adds a list, unless it is empty.
    pub fn list<T: AsRef<str>>(&mut self, items: impl IntoIterator<Item = T>) -> &mut Self {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return self;
        }
        self.body.push_str("<ul>");
        for item in items {
            // Writing to a string does not fail.
            let _ = write!(self.body, "<li>{}</li>", escape(item.as_ref()));
        }
        self.body.push_str("</ul>\n");
        self
    }

    /// Adds lines of code.
    pub fn code(&mut self, text: &str) -> &mut Self {
        self.element("pre", text)
    }

    /// Returns the page.
    pub fn finish(&self) -> String {
        let title = escape(&self.title);
        // Even if an escape were missing, the page could not run scripts or fetch anything.
        let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            self.body
        )
    }

    fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<{tag}>{}</{tag}>", escape(text));
        self
    }
}
