//! The family of an instance in `show` and `ls`.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde_json::json;

use crate::shop::{Order, Placed, orders};
use crate::support::{File, To, fsm, json};

#[derive(serde::Serialize, serde::Deserialize)]
struct Check {
    orders: u32,
}

#[verb]
async fn ordering(ctx: &mut Ctx<'_>, event: Check) -> Result {
    ctx.start_children::<Order>((1..=event.orders).map(|n| (format!("c-1/{n:02}"), Placed { cents: 1, fails: u32::from(n == 2) * 9 })))?;
    Ok(())
}
#[verb]
async fn ordered(_all: ChildrenEnded) -> Result {
    Ok(())
}

fsm! {
    machine Cart = "cart" {
        start ordering;
        ordering -> ordered;
        end ordered;
    }
}

async fn shown(bed: &TestBed) {
    bed.machine::<Cart>().send("c-1", Check { orders: 12 }).await.unwrap();
    bed.run_until_idle().await;
    bed.machine::<Order>().cancel("c-1/01", "sold out").await.unwrap();

    let cart = fsm(bed, To::Pipe, &["show", "cart", "c-1"]).await;
    for line in [
        "  about     rests and waits for an event or for its children\n",
        "  children  1 of `order` in no state yet, running\n",
        "            10 of `order` in `placed`, running\n",
        "            1 of `order` in `placed`, cancelled\n",
        "            order c-1/01  `placed`, cancelled\n",
        "            order c-1/02  no state yet, running\n",
        "            … and 2 more: fsm ls --parent cart/c-1\n",
    ] {
        assert!(cart.out.contains(line), "{line}{}", cart.out);
    }
    let order = fsm(bed, To::Pipe, &["show", "order", "c-1/03"]).await;
    assert!(order.out.contains("  parent    cart c-1  `ordering`, running\n"), "{}", order.out);
    let told = json(bed, &["show", "order", "c-1/03"]).await;
    assert_eq!(told["parent"], json!({ "machine": "cart", "key": "c-1", "state": "ordering", "status": "running" }));
    let told = json(bed, &["show", "cart", "c-1"]).await;
    assert_eq!((told["children"]["counts"].as_array().unwrap().len(), told["children"]["first"].as_array().unwrap().len()), (3, 12));

    let listed = json(bed, &["ls", "--parent", "cart/c-1", "--status", "running", "--limit", "7", "--oldest"]).await;
    let keys = |told: &serde_json::Value| -> Vec<String> {
        told["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&listed), (2..=8).map(|n| format!("c-1/{n:02}")).collect::<Vec<_>>());
    let after = listed["next"].as_str().unwrap();
    let rest = json(bed, &["ls", "--parent", "cart/c-1", "--key", "c-1/*", "--oldest", "--after", after]).await;
    assert_eq!(keys(&rest), (9..=12).map(|n| format!("c-1/{n:02}")).collect::<Vec<_>>());
    let missing = fsm(bed, To::Pipe, &["ls", "--parent", "cart/c-2"]).await;
    assert!(missing.code != 0 && missing.talk.contains("c-2"), "{missing:?}");
}

fn shop() -> TestBedBuilder {
    orders().only::<Cart>()
}

mod the_family_of_an_instance_is_shown_and_listed {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite() {
        let file = File::new();
        shown(&shop().on(&file.url()).await).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres() {
        shown(&shop().postgres().await).await;
    }
}
