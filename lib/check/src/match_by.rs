//! Which ids name the same protein.

/// What a row of a reference and a row of embeddings must share to be compared, beside their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum MatchBy {
    /// The whole id.
    #[default]
    Id,
    /// The accession of UniProt: `sp|P12345|NAME_HUMAN`, `tr|P12345|NAME` and `P12345` name the same protein. Isoforms, as
    /// `P12345-2`, are proteins of their own. An id of another form is taken whole.
    Accession,
}

impl MatchBy {
    /// Returns the part of `id` that must be the same.
    ///
    /// ```
    /// use plmkit_check::MatchBy;
    /// assert_eq!(MatchBy::Accession.key("sp|P12345-2|NAME_HUMAN"), "P12345-2");
    /// assert_eq!(MatchBy::Accession.key("gnl|P12345|x"), "gnl|P12345|x");
    /// assert_eq!(MatchBy::Id.key("sp|P12345|NAME_HUMAN"), "sp|P12345|NAME_HUMAN");
    /// ```
    pub fn key(self, id: &str) -> &str {
        let mut parts = id.split('|');
        match (self, parts.next(), parts.next()) {
            (Self::Accession, Some("sp" | "tr"), Some(accession)) if !accession.is_empty() => {
                accession
            }
            _ => id,
        }
    }
}
