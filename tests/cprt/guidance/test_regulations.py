"""Table 4 against the paper's own lines, what it is silent on, and the decision tree's worked examples (B.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cprt.guidance.regulations import Regulations, notes_of, regulations_of
from cprt.taxonomy import Taxonomy

# The paper's lines as its text has them: a row's cells stand in one line, one after the other.
TABLE_4 = """
Taxonomy Element GDPR HIPAA EU AI Act CCPA / CPRA
Biometric (for identification) Art. 4(14); Special Category under Art. 9(1) when used for unique identification Identifier under 45 CFR §164.514; PHI if health-related under §160.103 Biometric identification → High-Risk (Art. 6 + Annex III); Real-time remote ID restricted under Art. 5 Sensitive Personal Information (Cal. Civ. Code §1798.140(ae))
Government Identifiers Personal Data (Art. 4(1)); subject to Member State rules (Art. 87) Explicit identifier under §164.514 High-Risk if used in migration, border control, or law enforcement AI (Annex III) Sensitive Personal Information (§1798.140(ae))
Non-Unique Identifiers (IP, device IDs) Personal Data (Art. 4(1); Recital 30) Identifier under §164.514; PHI only in healthcare context High-Risk if embedded in high-impact AI systems (Annex III) Personal Information (§1798.140(v))
Medical Data Health Data (Art. 4(15)); Special Category (Art. 9(1)) Core PHI (§160.103) Healthcare AI → High-Risk (Annex III) Sensitive Personal Information (§1798.140(ae))
Mental Health / Emotion Inference Special Category (Art. 9(1)) PHI if documented in healthcare records Emotion recognition in workplace/education restricted (Art. 5); healthcare AI high-risk Sensitive Personal Information (health category)
Race / Ethnicity Special Category (Art. 9(1)) PHI only if in health context Sensitive trait categorization concerns (Art. 5) Sensitive Personal Information (§1798.140(ae))
Beliefs (religion, politics) Special Category (Art. 9(1)) Outside scope unless health-related High-Risk if used in employment, law enforcement, or essential services AI Sensitive Personal Information (§1798.140(ae))
Financial Data Personal Data (Art. 4(1)) PHI only if related to healthcare payment Credit scoring AI → High-Risk (Annex III) Account credentials → SPI; transaction history → PI
Location (precise) Personal Data (Art. 4(1); Recital 30) Identifier if tied to health context High-Risk if used in migration, policing, or law enforcement AI Precise geolocation → SPI
Activities & Behavior Personal Data; profiling safeguards (Art. 22) PHI only if health-related High-Risk if used in employment, credit scoring, or policing AI Personal Information (§1798.140(v))
Metadata Personal Data if identifiable Identifier under §164.514 if health context Relevant if embedded in high-risk AI systems Personal Information
Documents Depends on content; Art. 9 if sensitive category revealed PHI if medical record High-Risk if used in migration, employment, or border AI systems PI or SPI depending on content
Property & Assets Personal Data (Art. 4(1)) Outside HIPAA unless tied to healthcare payment High-Risk if tied to essential services AI Personal Information
Background Individuals & Crowds In scope only if identifiable (Art. 4(1)) PHI only if health-related Relevant if used in law enforcement AI Personal Information if linked
""".strip().splitlines()  # noqa: E501

# Appendix B.1, all of it.
WORKED_EXAMPLES = """
Passport Number : Q1: Yes → L1
Recognizable Face : Q1: Yes → L1
Fingerprint : Q1: Yes → L1
Driver’s License Number : Q1: Yes → L1
Social Security Number : Q1: Yes → L1
Full Legal Name : Q1: No; Q2: Yes → L2
Medical Diagnosis : Q1: No; Q2: Yes → L2
Pregnancy Status : Q1: No; Q2: Yes → L2
Political Party Membership : Q1: No; Q2: Yes → L2
Sexual Orientation Inference : Q1: No; Q2: Yes → L2
Race / Ethnicity : Q1: No; Q2: Yes → L2
Mental Health Condition (e.g., depression) : Q1: No; Q2: Yes → L2
Age : Q1: No; Q2: No; Q3: Yes → L3
Gender : Q1: No; Q2: No; Q3: Yes → L3
Occupation : Q1: No; Q2: No; Q3: Yes → L3
City-Level Location : Q1: No; Q2: No; Q3: Yes → L3
Hobbies (e.g., marathon runner) : Q1: No; Q2: No; Q3: Yes → L3
Home Interior : Q1: No; Q2: No; Q3: No; Q4: Yes → L4
Expensive watch : Q1: No; Q2: No; Q3: No; Q4: Yes → L4
""".strip().splitlines()

SILENT = "unique_body_markings contact_details full_legal_name nudity disability age gender lifestyle".split()


def test_every_row_is_the_papers_word_for_word():
    table = Regulations.published()
    assert " ".join(["Taxonomy Element", *table.frameworks]) == TABLE_4[0]
    assert [" ".join([row.element, *row.texts.values()]) for row in table.rows] == TABLE_4[1:]


@pytest.mark.parametrize(  # a word on either side of each cut, since a line does not say where its cells end
    ("key", "gdpr", "hipaa", "ai_act", "ccpa"),
    [
        (
            "biometrics",
            "Art. ... identification",
            "Identifier ... §160.103",
            "Biometric ... Art. 5",
            "Sensitive Personal Information (Cal. ... §1798.140(ae))",
        ),
        ("gov_ids", "Personal ... 87)", "Explicit ... §164.514", "High-Risk ... III)", "Sensitive ... (§1798.140(ae))"),
        ("non_unique_id", "Personal ... 30)", "Identifier ... context", "High-Risk ... III)", "Personal ... (v))"),
        ("medical_data", "Health Data ... 9(1))", "Core ... )", "Healthcare ... III)", "Sensitive ... (ae))"),
        (
            "emotion_mental_health",
            "Special ... 9(1))",
            "PHI ... records",
            "Emotion ... high-risk",
            "Sensitive ... category)",
        ),
        ("race_ethnicity", "Special ... 9(1))", "PHI ... context", "Sensitive trait ... 5)", "Sensitive Personal ... "),
        ("beliefs", "Special ... 9(1))", "Outside ... health-related", "High-Risk ... services AI", "Sensitive ... )"),
        ("financial_data", "Personal ... 4(1))", "PHI ... payment", "Credit ... III)", "Account ... PI"),
        ("location", "Personal ... 30)", "Identifier ... context", "High-Risk ... enforcement AI", "Precise ... SPI"),
        ("activities", "Personal ... 22)", "PHI ... health-related", "High-Risk ... policing AI", "Personal ... (v))"),
        (
            "metadata",
            "Personal ... identifiable",
            "Identifier ... context",
            "Relevant ... systems",
            "Personal Information",
        ),
        ("documents", "Depends ... revealed", "PHI ... record", "High-Risk ... systems", "PI ... content"),
        (
            "property_assets",
            "Personal ... 4(1))",
            "Outside ... payment",
            "High-Risk ... services AI",
            "Personal Information",
        ),
        (
            "background_people",
            "In scope ... 4(1))",
            "PHI ... health-related",
            "Relevant ... enforcement AI",
            "Personal Information if linked",
        ),
    ],
)
def test_cells_are_cut_where_they_end(key: str, gdpr: str, hipaa: str, ai_act: str, ccpa: str):
    found = regulations_of(key)
    assert found is not None and list(found) == ["GDPR", "HIPAA", "EU AI Act", "CCPA / CPRA"]
    for text, ends in zip(found.values(), (gdpr, hipaa, ai_act, ccpa), strict=True):
        first, _, last = ends.partition(" ... ")
        assert text.startswith(first) and text.endswith(last)


def test_each_row_belongs_to_one_attribute_and_the_others_have_none():
    joined = [key for row in Regulations.published().rows for key in row.attributes]
    assert len(joined) == len(set(joined)) == 14
    without = [key for key in Taxonomy.default().keys if regulations_of(key) is None]
    assert without == SILENT
    assert set(joined) | set(without) == set(Taxonomy.default().keys)


def test_an_attribute_of_ones_own_gets_no_invented_law(tmp_path: Path):
    file = tmp_path / "more.yaml"
    file.write_text("attributes:\n  - {key: voice_print, level: 1, question: 'Is a voice print visible?'}\n")
    taxonomy = Taxonomy.load(file)
    assert regulations_of("voice_print", taxonomy) is None
    assert regulations_of("metadata", taxonomy) == regulations_of("metadata")
    for look_up in (regulations_of, notes_of):
        with pytest.raises(ValueError, match="'voice_print' is not in the taxonomy"):
            look_up("voice_print")


def test_the_two_homes_of_ip_addresses_are_noted():
    question = {attribute.key: attribute.question for attribute in Taxonomy.default().attributes}
    assert "IP address" in question["contact_details"] and "IP" not in question["non_unique_id"]  # Table 5
    assert "Non-Unique Identifiers (IP, device IDs)" in [row.element for row in Regulations.published().rows]
    for key in ("contact_details", "non_unique_id"):
        (note,) = notes_of(key)
        assert "IP addresses" in note and "Table 4" in note and "Table 5" in note
    assert notes_of("age") == ()


def test_a_caller_cannot_change_the_table():
    found = regulations_of("metadata")
    assert found is not None
    found["GDPR"] = "anything"
    assert regulations_of("metadata") != found


@pytest.mark.parametrize("line", WORKED_EXAMPLES)
@pytest.mark.parametrize("unasked", [False, True])
def test_the_decision_tree_on_the_papers_examples(line: str, unasked: bool):
    """Questions after the first yes are not asked, so their answers may not matter."""
    questions, level = line.split(" : ")[1].split(" → L")
    asked = [answer.split(": ")[1] == "Yes" for answer in questions.split("; ")]
    assert Taxonomy.decide(*asked, *[unasked] * (4 - len(asked))) == int(level)


def test_all_worked_examples_are_here():
    assert len(WORKED_EXAMPLES) == 19
    assert [sum(line.endswith(f"L{level}") for line in WORKED_EXAMPLES) for level in (1, 2, 3, 4)] == [5, 7, 5, 2]
