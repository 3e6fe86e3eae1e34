//! Each way to switch a mutant, and what is refused.

use super::*;
use crate::mutant::Killer;

const fn mutant(name: &'static str, file: &'static str, change: Change) -> Mutant {
    let killer = Killer {
        target: "loops",
        test: "a::test",
    };
    Mutant {
        name,
        wrong: "It is wrong.",
        file,
        change,
        killer,
    }
}

const fn rust(name: &'static str, right: &'static str, wrong: &'static str) -> Mutant {
    mutant(name, "a.rs", Change::Rust { right, wrong })
}

fn applied(path: &str, text: &str, mutants: &[Mutant]) -> Result<Files> {
    let mut files = Files::new();
    files.insert(SWITCH_IN.to_owned(), String::new());
    files.insert(path.to_owned(), text.to_owned());
    files.insert("b.rs".to_owned(), "f(include_str!(\"a.lua\"))".to_owned());
    apply(&mut files, mutants)?;
    Ok(files)
}

fn in_a(text: &str, mutants: &[Mutant]) -> Result<String> {
    let mut files = applied("a.rs", text, mutants)?;
    Ok(files.remove("a.rs").unwrap())
}

#[test]
fn an_expression_and_a_statement_are_switched() {
    let both = [rust("x", "a + b", "a"), rust("y", "go();", "")];
    let expected = "let c = ::std::convert::identity(\
        if ::domain::mutants::on(\"x\") { a } else { a + b }); \
        if ::domain::mutants::on(\"y\") {  } else { go(); }";
    assert_eq!(in_a("let c = a + b; go();", &both).unwrap(), expected);
}

#[test]
fn many_share_a_place_and_none_overlap() {
    let shared = [rust("x", "a + b", "a"), rust("y", "a + b", "b")];
    let code = in_a("a + b", &shared).unwrap();
    assert!(code.contains("{ a } else if") && code.contains("{ b } else { a + b }"));
    let overlapping = [rust("x", "a + b", "a"), rust("y", "b + c", "c")];
    in_a("a + b + c", &overlapping).unwrap_err();
}

#[test]
fn a_stale_mutant_is_an_error() {
    for text in ["a - b", "a + b; a + b"] {
        let error = in_a(text, &[rust("x", "a + b", "a")]).unwrap_err();
        assert!(format!("{error:#}").contains("x: stale"), "{error:#}");
    }
    let elsewhere = mutant(
        "x",
        "c.rs",
        Change::Rust {
            right: "a",
            wrong: "b",
        },
    );
    in_a("a", &[elsewhere]).unwrap_err();
}

#[test]
fn a_literal_is_switched_where_it_is_used() {
    let text = || Change::Text {
        right: "where x",
        wrong: "",
    };
    let code = in_a("sql(\"a where x\")", &[mutant("m", "a.rs", text())]).unwrap();
    let expected = "sql(::domain::mutants::text(\"a where x\", &[(\"m\", \"a \")]))";
    assert_eq!(code, expected);

    let constant = "const SQL: &str = \"a where x\";\nsql(SQL); MY_SQL";
    let code = in_a(constant, &[mutant("m", "a.rs", text())]).unwrap();
    let expected = "const SQL: &str = \"a where x\";\n\
        sql(::domain::mutants::text(SQL, &[(\"m\", \"a \")])); MY_SQL";
    assert_eq!(code, expected);
}

#[test]
fn an_included_file_has_a_wrong_version_beside_it() {
    let change = Change::Text {
        right: "true",
        wrong: "false",
    };
    let files = applied("a.lua", "if true", &[mutant("m", "a.lua", change)]).unwrap();
    assert_eq!(files["a.lua"], "if true");
    assert_eq!(files["a.lua.m"], "if false");
    let expected = "f(::domain::mutants::text(include_str!(\"a.lua\"), \
        &[(\"m\", include_str!(\"a.lua.m\"))]))";
    assert_eq!(files["b.rs"], expected);
}
