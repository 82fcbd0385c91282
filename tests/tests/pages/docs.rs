//! The guide on the pages: found from every page, read without a script, and the text that ships.

use super::door::Door;

#[test]
fn the_guide_is_in_the_navigation_and_whole() {
    let door = Door::open();
    let cookie = [door.cookie_line()];
    let home = door.get("/", &cookie).body;
    assert!(home.contains("href=\"/docs\""), "{home}");
    let index = door.get("/docs", &cookie);
    assert_eq!(index.status, 200);
    for chapter in bosun_worker::guide::CHAPTERS {
        assert!(index.body.contains(&format!("href=\"/docs/{}\"", chapter.name)), "{}", chapter.name);
        let page = door.get(&format!("/docs/{}", chapter.name), &cookie);
        assert_eq!(page.status, 200, "{}", chapter.name);
        let sections =
            chapter.text.split("\n```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with("## "));
        assert_eq!(page.body.matches("<h2 id=").count(), sections.count(), "{}", chapter.name);
        assert!(!page.body.contains("crate::guide"), "{}: a link of rustdoc leads nowhere here", chapter.name);
    }
    let operating = door.get("/docs/operating", &cookie).body;
    assert!(operating.contains("bosun schedule trigger sync --data ./data"), "commands stand in it as they are typed");
    let none = door.get("/docs/nothing", &cookie);
    assert!(none.status == 404 && none.body.contains("no such chapter"), "{}", none.body);
    assert_eq!(door.get("/docs", &[]).status, 303, "who is not signed in signs in first");
}
