// The report on one or more runs: all sections of its document.

import { count, Fragment, html, link, Loaded, useData, useEffect, useState } from '../base.js'
import { Panel } from '../figures.js'
import { Marker } from '../numbers.js'
import { contentOfRecords } from '../saving.js'
import * as source from '../source.js'
import { Bar, Save } from '../tables.js'

// The report of some runs. keys chooses sections. contents(key) gives the address of a section.
export function Report({ slugs, keys, skipped = [], contents, section }) {
  const state = useData(() => source.report(slugs), [slugs.join('~')])
  return html`<${Loaded} state=${state} what="the report">${document => {
    const sections = document.sections.filter(({ key }) => (keys ? keys.includes(key) : !skipped.includes(key)))
    if (keys) return sections.map(one => html`<${Section} section=${one} document=${document} />`)
    return html`<${Whole} document=${document} sections=${sections} contents=${contents} chosen=${section} />`
  }}<//>`
}

function Whole({ document: content, sections, contents, chosen }) {
  const galleries = Object.entries(content.galleries)
  const parts = [['runs', 'What was run'], ...sections.map(({ key, title }) => [key, title]), ...(galleries.length ? [['gallery', 'Gallery']] : [])]
  useEffect(() => {
    if (chosen) document.getElementById(`part-${chosen}`)?.scrollIntoView()
  }, [chosen])
  const go = key => document.getElementById(`part-${key}`)?.scrollIntoView()
  return html`
    ${content.summary.map(sentence => html`<p class="lede">${sentence}</p>`)}
    <nav class="contents" aria-label="Contents"><ul>${parts.map(([key, title]) => html`<li><a href=${contents(key)} onClick=${() => go(key)}>${title}</a></li>`)}</ul></nav>
    <section id="part-runs" class="report"><h2>What was run</h2><div class="cards-of-runs">${content.facts.map((facts, number) => html`
      <article class="run-card">
        <h3><${Marker} mark=${content.marks[number]} /> ${content.marks[number].label}</h3>
        <${Facts} facts=${facts} />
        <${Command} command=${content.commands[number]} />
      </article>`)}</div></section>
    ${sections.map(one => html`<${Section} key=${one.key} section=${one} document=${content} />`)}
    ${galleries.length > 0 && html`<section id="part-gallery" class="report"><h2>Gallery</h2>
      <p class="intro">Where the model was surely wrong (the right answer is furthest below the best), surely right, and examples at random. <b class="right">✓ right</b> marks the right answer and <b class="chosen">▸ chosen</b> the model's. Scores are relative to the best candidate of the example.</p>
      ${galleries.map(([task, some]) => html`<${Fold} key=${task} title=${taskLabel(content, task)}>${() => some.map(one => html`<${Gallery} one=${one} isOneOfMany=${content.facts.length > 1} />`)}<//>`)}
    </section>`}
    ${content.papers.length > 0 && html`<footer class="papers"><p>The paper's numbers: ${content.papers.map(({ authors, title, venue, arxiv }) => `${authors}, “${title}”${venue ? `, ${venue}` : ''}${arxiv ? `, arXiv ${arxiv}` : ''}`).join('; ')}.</p></footer>`}`
}

// The label of a task, which headings of the first table have next to the name.
function taskLabel(content, task) {
  const rows = content.sections.flatMap(({ tables }) => tables.flatMap(table => table.rows))
  return rows.find(({ heading, cells }) => heading && cells[0].small === task)?.cells[0].text ?? task
}

export function Facts({ facts }) {
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`
}

// A command with a button that copies it.
export function Command({ command }) {
  const [said, setSaid] = useState('Copy')
  if (!command) return null
  const copy = () => navigator.clipboard.writeText(command).then(() => setSaid('Copied'), () => setSaid('Select it and copy'))
  return html`<p class="how">To run it again: <button type="button" class="quiet" onClick=${copy}>${said}</button></p>
    <pre tabindex="0" aria-label="Command"><code>${command}</code></pre>`
}

export function Section({ section, document: content }) {
  const { key, title, intro, legend, panels, tables, folds, notes, records } = section
  return html`<section id=${`part-${key}`} class=${`report of-${key}`}>
    <h2>${title}</h2>
    ${intro.map(sentence => html`<p class="intro">${sentence}</p>`)}
    ${legend.length > 0 && html`<ul class="legend">${legend.map(number => html`<li><${Marker} mark=${content.marks[number]} /><span>${content.marks[number].label}</span></li>`)}</ul>`}
    <${Panels} panels=${panels} name=${key} />
    ${tables.map((table, number) => html`<${ReportTable} table=${table} marks=${content.marks} name=${named(key, number)} title=${title} />`)}
    ${folds.map((fold, place) => html`<${Fold} key=${place} title=${fold.title} names=${fold.names} isOpen=${fold.open}>${() => html`
      <${Panels} panels=${fold.panels} name=${`${key}-${place + 1}`} />
      ${fold.tables.map((table, number) => html`<${ReportTable} table=${table} marks=${content.marks} name=${named(`${key}-${place + 1}`, number)} title=${`${title}: ${fold.title}${number ? ` (${number + 1})` : ''}`} />`)}
      ${fold.questions.length > 0 && html`<div class="cards wide">${fold.questions.map(one => html`<${Pictured} one=${one} marks=${content.marks} isAlone=${content.facts.length < 2} />`)}</div>`}
      ${fold.cards.length > 0 && html`<div class="cards">${fold.cards.map(card => html`<${Card} one=${card} />`)}</div>`}`}<//>`)}
    ${notes.length > 0 && html`<ul class="notes">${notes.map(note => html`<li>${note}</li>`)}</ul>`}
    ${Object.entries(records).filter(([, rows]) => rows.length).map(([file, rows]) => {
      const name = file.replace(/\.csv$/, '')
      return html`<${Save} make=${() => contentOfRecords(rows)} name=${name} caption=${`the numbers of ${title} (${name})`} said=${`All numbers behind this section, ${name} (${count(rows.length)} rows):`} />`
    })}
  </section>`
}

const named = (key, number) => (number ? `${key}-table-${number + 1}` : key)

// What is folded is made when it is opened.
export function Fold({ title, names, isOpen = false, children }) {
  const [wasOpened, setOpened] = useState(isOpen)
  return html`<details class="folded" open=${isOpen} onToggle=${event => event.currentTarget.open && setOpened(true)}>
    <summary>${title}${names && html` <span>${names}</span>`}</summary>
    ${wasOpened && children()}
  </details>`
}

function Panels({ panels, name }) {
  if (!panels.length) return null
  return html`<div class=${panels.length > 1 ? 'panels' : 'panels alone'}>${panels.map((panel, number) => html`<${Panel} key=${number} panel=${panel} name=${named(name, number)} />`)}</div>`
}

// A table of the report: rows may be headings, and cells have small print and bars.
function ReportTable({ table, marks, name, title }) {
  const caption = table.caption || title
  const width = table.columns.length
  return html`<div class="scroll" role="region" tabindex="0" aria-label=${caption}>
    <table class="of-report">
      <caption class=${!table.caption && 'unseen'}>${caption}</caption>
      <thead><tr>${table.columns.map(column => html`<th scope="col">${typeof column === 'number' ? html`<${Marker} mark=${marks[column]} /> ${marks[column].label}` : column}</th>`)}</tr></thead>
      <tbody>${table.rows.map(({ heading, cells }) => (heading
        ? html`<tr class="task"><th scope="rowgroup" colspan=${width}><span class="stays">${cells[0].text}${cells[0].small !== cells[0].text && html` <code>${cells[0].small}</code>`}</span></th></tr>`
        : html`<tr>${cells.map((cell, number) => html`<${ReportCell} cell=${cell} isFirst=${!number} />`)}</tr>`))}</tbody>
    </table></div>
    ${table.more > 0 && html`<p class="more">${count(table.more)} more rows are in the file of all numbers.</p>`}
    <${Save} make=${() => contentOfTable(table, marks)} caption=${caption} name=${name} />`
}

const inOneLine = ({ text, small, below }) => {
  const print = [small, below].filter(Boolean).join('; ')
  return print ? `${text} (${print})` : text
}

// As winobench.report.cells.Table.written.
function contentOfTable({ columns, rows, caption }, marks) {
  const labels = columns.map(column => (typeof column === 'number' ? marks[column].label : column))
  const texts = rows.map(({ heading, cells }) => (heading ? [cells[0].text] : cells.map(inOneLine)))
  const hasWords = rows.some(({ cells }) => cells.some(({ style }) => style === 'said'))
  const data = texts.map(row => labels.map((_, place) => row[place] ?? null))
  return { keys: unlike(labels), data, labels, texts, left: hasWords ? labels.length : 1, caption }
}

// Names of which no two are the same.
function unlike(labels) {
  return labels.map((label, place) => (labels.indexOf(label) === place && label ? label : `${label || 'column'} (${place + 1})`))
}

function ReportCell({ cell, isFirst }) {
  return html`<${isFirst ? 'th' : 'td'} scope=${isFirst ? 'row' : undefined} class=${cell.style || undefined}><span class="number">${cell.text}</span>${cell.small && html` <small>${cell.small}</small>`}${cell.below && html`<small class="below">${cell.below}</small>`}${cell.bar && html`<${Bar} ...${cell.bar} />`}<//>`
}

function Picture({ address, words }) {
  return address ? html`<img src=${address} alt=${words} decoding="async" />` : html`<span class="nothing">no picture kept</span>`
}

function Gallery({ one, isOneOfMany }) {
  return html`<${Fragment}>
    ${isOneOfMany && html`<h3>${one.run}</h3>`}
    ${one.lacks_pictures && html`<p class="intro">The run kept no pictures of these examples.</p>`}
    ${one.kinds.map(([kind, cards]) => html`<${isOneOfMany ? 'h4' : 'h3'}>${kind}<//><div class="cards">${cards.map(card => html`<${Card} one=${card} />`)}</div>`)}
  <//>`
}

function Card({ one }) {
  return html`<article class=${`card ${one.is_correct ? 'correct' : 'wrong'}`}>
    <header><b>${one.is_correct ? '✓' : '✗'} ${one.verdict}</b> <span>${one.id}${one.groups && ` · ${one.groups}`}</span></header>
    ${one.square ? html`<${Square} square=${one.square} />` : html`
      <div class=${one.query_text !== null ? 'body by-picture' : 'body'}>
        ${one.query_text !== null ? html`<p class="query">“${one.query_text}”</p>` : html`<div class="query"><${Picture} address=${one.query_picture} words="the image in question" /></div>`}
        <ol class=${one.query_text !== null ? 'pictures' : 'texts'}>${one.candidates.map(each => html`<${Candidate} one=${each} />`)}</ol>
      </div>
      ${one.hidden > 0 && html`<p class="more">${count(one.hidden)} more candidates</p>`}`}
  </article>`
}

function Square({ square }) {
  const cell = ([text, isRight, isChosen]) => html`<td class=${[isRight && 'is-right', isChosen && 'is-chosen'].filter(Boolean).join(' ')}>${isRight && '✓ '}${isChosen && '▸ '}${text}</td>`
  return html`<table class="square"><tbody>
    <tr><td></td>${square.pictures.map((address, place) => html`<td><${Picture} address=${address} words=${`image ${place + 1}`} /></td>`)}</tr>
    ${square.texts.map((text, column) => html`<tr><th scope="row">${text}</th>${square.cells.map(row => cell(row[column]))}</tr>`)}
  </tbody></table>`
}

function Candidate({ one }) {
  const isPicture = one.text === null
  const kinds = ['candidate', one.is_right && 'is-right', one.is_chosen && 'is-chosen', isPicture && 'is-picture'].filter(Boolean)
  return html`<li class=${kinds.join(' ')}>
    ${isPicture ? html`<${Picture} address=${one.picture} words=${`candidate ${one.number}`} />` : html`<span class="words">${one.text}</span>`}
    ${one.edited && html`<figure class="edit"><img src=${one.edited} alt=${`candidate ${one.number}, edited towards the text`} decoding="async" /><figcaption>${one.edit}</figcaption></figure>`}
    <span class="score"><span class="badges">${one.is_right && html`<b class="right">✓ right</b>`}${one.is_chosen && html`<b class="chosen">▸ chosen</b>`}</span><span class="amount">${one.score}</span></span>
    <span class="share" style=${{ '--share': `${(100 * one.share).toFixed(1)}%` }}></span>
  </li>`
}

// A question about images, and the runs' answers.
function Pictured({ one, marks, isAlone }) {
  const whose = vote => !isAlone && html`<${Marker} mark=${marks[vote.run]} />`
  return html`<article class=${`card pictured ${one.is_correct ? 'correct' : 'wrong'}`}>
    <p class="query">“${one.text}” <span>${one.id}</span></p>
    <ol class="choices">${one.options.map((option, place) => html`<li class=${place === one.right && 'is-right'}>${place + 1}: ${option}${place === one.right && html` <b class="right">✓ right</b>`}</li>`)}</ol>
    <ol class="pictures">${one.pictures.map(([address, votes], place) => html`<li><${Picture} address=${address} words=${`picture ${place + 1} of the sentence`} />${votes.map(vote => html`
      <span class="vote">${whose(vote)}<b class=${vote.is_right ? 'right' : 'chosen'}>${vote.choice}</b>${vote.said && html` <small>${vote.said}</small>`}</span>`)}</li>`)}</ol>
    <ul class="verdicts">${one.answers.map(vote => html`<li>${whose(vote)} <b class=${vote.is_right ? 'right' : 'chosen'}>${vote.is_right ? '✓' : '✗'} ${vote.choice}</b> ${vote.said}</li>`)}</ul>
  </article>`
}

export const reportAddress = slugs => link(slugs.length > 1 ? ['compare', slugs[0], slugs.slice(1).join(',')] : ['run', slugs[0], 'report'])
