"""Texts that images must show, and what judges read there: right, wrong, empty, refused, doubled, strange."""

LONGTEXT = (
    ["FRESH BREWS, EVERY MORNING, EVERY DAY", "Locally Roasted Since 1998", "Café à l'été - 2 BLOCKS"],
    [
        "FRESH BREWS, EVERY MORNING, EVERY DAY\nLocally Roasted Since 1998\nCafé à l'été - 2 BLOCKS",
        "blocks 2, lété a À CAFÉ 1998 since roasted locally day every morning every brews fresh",
        "every EVERY Every every",
        "every",
        "FRESHBREWS EVERYMORNING",
        "ＦＲＥＳＨ ＢＲＥＷＳ １９９８",
        "FRESH\u3000BREWS\u00a0EVERY\u200bMORNING",
        "```\nFRESH BREWS\n```",
        '"FRESH BREWS, EVERY DAY!!!"',
        "No text recognized",
        "No text recognized.",
        "addCriterion\nFRESHaddCriterion",
        "\nFRESH No text No text recognized.recognized. DAY",
        "I'm sorry, but I can't help with that image.",
        "",
        " \n\t ",
        "每日新鲜烘焙 FRESH",
        "19 98 2",
        "BREWS " * 500,
    ],
)

LONGTEXT_ZH = (
    ["每日新鲜烘焙", "本地烘焙，始于1998", "中央公园 - 2公里 WiFi"],
    [
        "每日新鲜烘焙\n本地烘焙，始于1998\n中央公园 - 2公里 WiFi",
        "里公2园央中 wifi 8991于始",
        "烘烘烘烘焙焙焙",
        "焙",
        "每日新鮮烘焙",
        "１９９８ 龥龦",
        "No text recognized.",
        "No text recognized",
        "对不起，我无法识别图片中的文字。",
        "",
        "**每日**「新鲜」",
    ],
)

ONEIG = (
    "['The Impact of 5G', 'Title: A\\nB', \"Don't\"]",
    [
        "The Impact of 5G Title AnB Dont",
        "The Impact of 5G\nTitle: A\nB\nDon't",
        "the impact of 5g title anb dont",
        "Dont AnB Title 5G of Impact The",
        "The The Impact",
        "The Impact of 5G, Title: AnB, Dont!addCriterion",
        "The Impact of 5G 标题",
        "No text recognized",
        "No text recognized.\n",
        "addCriterionNo text recognized.",
        "I cannot help with this picture.",
        "",
        "x" * 400,
        "Ｔｈｅ Ｉｍｐａｃｔ",
    ],
)

ONEIG_ZH = (
    "['标题：去噪', 'Jonathan Ho，2020', '标题\\n']",
    [
        "标题去噪JonathanHo2020标题n",
        "标题：去噪\nJonathan Ho，2020\n标题",
        "标题：去噪 jonathan ho",
        "Jonathan Ho 2020",
        "题标题标",
        "No text recognized.",
        "抱歉，我无法读取。",
        "",
        "標題：去噪",
    ],
)

WORDS = (
    ["Drink", "tea!", "RELAX", "tea!", "l'été"],
    [
        "drink\nTEA!\nrelax\ntea!\nL'ÉTÉ",
        "drink tea! relax",
        "drink  tea! relax",
        "Drnk\ntae!\nre lax",
        "tea",
        "zzz qqq",
        "e\nea\ntea!!\ntea!?",
        "DRINK tea! RELAX tea! l'été and many more words that nobody wanted",
        "ＤＲＩＮＫ",
        "l’été",
        "",
        "No text recognized",
    ],
)
